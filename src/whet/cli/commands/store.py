"""`whet store`: what is kept, what may go, and what others know."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, StoreOption, argument, option, resolved
from whet.cli.arguments.reading import (
    SHORT_ID,
    NothingKnownError,
    check_there,
    chosen,
    contested_lines,
    device_text,
    moment_text,
    open_known,
    problem_text,
    source_labels,
)
from whet.cli.terminal.help import refuse_others
from whet.cli.terminal.output import (
    Column,
    bytes_text,
    columns,
    count_text,
    flexible,
    ns_text,
    page,
    print_json,
    print_lines,
    right,
    table,
    wrap,
)
from whet.core.errors import UsageError
from whet.core.workload import Workload
from whet.store import open_store, store_place, unsent
from whet.store.matching import arriving, identity, lookalikes

if TYPE_CHECKING:
    from whet.store import MergedPick, Store, StoreReader, WorkloadSummary
    from whet.store.postgres.verified import PromotionReport


def stats(
    every: Annotated[bool, option("--list", "List the stored workloads.")] = False,
    check: Annotated[
        bool,
        option("--check", "Read every stored result and report damage; the exit code is then 1."),
    ] = False,
    ray: Annotated[
        str | None,
        option("--ray ADDRESS", "Show who tunes and builds what on a Ray cluster, or auto."),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Count what is stored, and for a shared store who contributed it.

    --ray lists the devices that measure, the machines that build, and those that are not used,
    with the reason.

    Examples:
      whet store stats
      whet store stats --list
      whet store stats --list --json | jq '.workloads[].trials'
      whet store stats --check
      whet store stats --check --json | jq '.faults[]'
      whet store stats --store postgresql://db.example/whet?namespace=team
      whet store stats --ray 10.0.0.1:6379
    """
    if every + check + (ray is not None) > 1:
        raise UsageError("use only one of --list, --check and --ray")
    if every:
        _list(store, json)
    elif check:
        _check(store, json)
    elif ray is not None:
        _cluster(ray, json)
    else:
        _count(store, json)


def _list(store: str | None, json: bool) -> None:
    try:
        with open_known(store, bundle=False) as opened:
            location, size, known = opened.location, opened.size_bytes, opened.workloads()
    except NothingKnownError as nothing:
        if json:
            print_json({"v": 1, "store": nothing.place, "exists": False, "workloads": []})
        else:
            print(nothing)
        return
    if json:
        print_json(
            {
                "v": 1,
                "store": location,
                "exists": True,
                "workloads": [
                    {
                        "workload": one.workload.to_json(),
                        "trials": one.trials,
                        "configs": one.configs,
                        "ok": one.ok,
                        "active": one.active,
                        "best": None if one.best is None else dict(one.best.config),
                        "median_ns": one.median_ns,
                        "contested": [dict(rival.config) for rival in one.rivals],
                    }
                    for one in known
                ],
            }
        )
        return
    print_lines(listing(location, size, known))


def _check(store: str | None, json: bool) -> None:
    from whet.store.upkeep import faults_in

    with open_known(store, bundle=False) as opened:
        location = opened.location
        faults = list(faults_in(opened))
    if json:
        print_json({"v": 1, "store": location, "faults": faults})
    else:
        print_lines(faults)
        count = len(faults)
        said = "no faults" if not count else "1 fault" if count == 1 else f"{count:,} faults"
        print(f"{location}: {said}")
    if faults:
        raise typer.Exit(1)


def _count(store: str | None, json: bool) -> None:
    from whet.store.upkeep import counts_of

    with open_known(store, bundle=False) as opened:
        found = counts_of(opened)
    here = unsent(store)
    if json:
        print_json(
            {
                "v": 1,
                "store": found.location,
                "workloads": found.workloads,
                "trials": found.trials,
                "runs": found.runs,
                "missed": found.missed,
                "bytes": found.size_bytes,
                "kernels": dict(found.kernels),
                "devices": dict(found.devices),
                "writers": [asdict(one) for one in found.writers],
                "unsent": {"waiting": here.waiting, "refused": list(here.refused)},
            }
        )
        return
    size = "" if found.size_bytes is None else f", {bytes_text(found.size_bytes)}"
    lines = [
        found.location,
        f"{found.workloads:,} workloads, {found.trials:,} trials, {found.runs:,} runs, "
        f"{found.missed:,} missed{size}",
    ]
    if here.waiting:
        lines.append(f"{here.waiting:,} entries of this host wait for the server")
    if here.refused:
        lines.append(
            f"{len(here.refused):,} were refused and are kept, to be sent again; the last:"
        )
        lines.append(f"  {here.refused[-1]}")
    for title, counts in (("kernel", found.kernels), ("device", found.devices)):
        layout = [flexible(title), right("workloads")]
        rows = [(name, f"{count:,}") for name, count in counts.items()]
        lines += ["", *table(layout, rows, columns())] if rows else []
    if found.writers:
        layout = [flexible("written by"), right("trials")]
        layout += [Column("last")]
        writers = [(str(o.writer), f"{o.trials:,}", moment_text(o.last)) for o in found.writers]
        lines += ["", *table(layout, writers, columns())]
    print_lines(lines)


def merge(
    others: Annotated[list[str], argument("OTHER", "Stores, or bundles of 'whet pack', to read.")],
    binaries: Annotated[
        Path | None, option("--binaries DIR", "Where to put compiled kernels.", "bundles")
    ] = None,
    listing: Annotated[
        bool, option("--list", "List the contents and change nothing.", "bundles")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Add results from other stores, or from bundles.

    Results are only ever used for the device they were measured on. If two stores picked different
    configs for one workload, the pick changes only if both stores measured both configs and agree
    on which is faster. Otherwise this store's pick stays and is marked as contested; the next
    tuning run measures both side by side and decides.

    Examples:
      whet store merge colleague.db
      whet store merge rank0.db rank1.db --store all.db
      whet store merge results.whet --list        list the contents of a bundle
      whet store merge results.whet               add it to your store
      whet store merge results.whet --store all.db --binaries compiled/
    """
    where = resolved(store=store).settings.store
    bundles = [one for one in others if _is_bundle(one)]
    plain = [one for one in others if one not in bundles]
    if plain and (listing or binaries is not None):
        raise UsageError(f"{plain[0]} is a store; --list and --binaries are for bundles")
    check_there(*plain)
    if store_place(where) in map(store_place, plain):
        raise UsageError(f"cannot merge {store_place(where)} into itself")
    with ExitStack() as stack:
        read = {}
        if bundles:
            from whet.cli.commands import pack
            from whet.store.bundles.bundle import open_bundle

            read = {one: stack.enter_context(open_bundle(one)) for one in bundles}
        if listing:
            pack.print_contents(list(read.values()), json)
            return
        for bundle in read.values():
            bundle.check()
        said: list[str] = []
        merged: list[dict[str, Any]] = []
        with open_store(where, direct=True) as opened:
            for other in others:
                if other in read:
                    lines, told = pack.unpacked(read[other], opened, binaries)
                else:
                    lines, told = _merged(other, opened)
                said += lines
                merged.append(told)
            said += [*namesakes(opened), f"saved in {opened.location}"]
    if json:
        print_json({"v": 1, "store": opened.location, "merged": merged})
    else:
        print_lines(said)


def _is_bundle(place: str) -> bool:
    if not os.path.isfile(place):
        return False
    with open(place, "rb") as file:
        return file.read(2) == b"PK" or place.endswith(".whet")


def _merged(other: str, opened: Store) -> tuple[list[str], dict[str, Any]]:
    """What to say of a store that was merged into the one that is open."""
    with open_store(other, read_only=True, direct=True) as source:
        new = arriving(opened, source)
        report = opened.merge(source)
    counts = counts_text(report.workloads, report.trials, report.runs)
    lines = [f"{source.location}: {counts} new", *by_device(new), *pick_lines(report.picks)]
    numbers = {"workloads": report.workloads, "trials": report.trials, "runs": report.runs}
    return lines, {"store": source.location, "new": numbers, "picks": picks_json(report.picks)}


def init(
    upgrade: Annotated[
        bool, option("--upgrade", "Upgrade a store to the schema of this version of whet.")
    ] = False,
    reader: Annotated[
        list[str] | None, option("--reader ROLE", "A database role that may read.")
    ] = None,
    contributor: Annotated[
        list[str] | None,
        option("--contributor ROLE", "One that adds results and cannot change or remove any."),
    ] = None,
    promoter: Annotated[
        list[str] | None,
        option("--promoter ROLE", "One that decides what production uses, and adds no results."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Create an empty store, if there is none yet; upgrade it, or say who may use it.

    A store on a server is upgraded only by --upgrade, so that nobody changes it for everybody by
    accident. A file is upgraded whenever it is opened for writing. What a role may do is enforced
    by the database, and replaces what it was allowed in this store before.

    Examples:
      whet store init --store postgresql://db.example/whet?namespace=team
      whet store init --upgrade --store postgresql://db.example/whet
      whet store init --reader serving --contributor tuning --promoter release
    """
    from whet.store.upkeep import grant_role, init_store, migrate_store, shared_place

    where = resolved(store=store).settings.store
    levels = {"reader": reader, "contributor": contributor, "promoter": promoter}
    roles = [(level, role) for level, named in levels.items() for role in named or ()]
    if roles:
        shared_place(where, "roles")
    if not upgrade:
        found = init_store(where)
        state = "already there" if found.before else "ready"
        print(f"store {found.location} is {state}{_version_text(found.now)}")
    else:
        found = migrate_store(where)
        if found.before == found.now:
            print(f"store {found.location} is up to date{_version_text(found.now)}")
        else:
            versions = f"from schema version {found.before} to {found.now}"
            print(f"store {found.location} upgraded {versions}")
    for level, role in roles:
        print(f"role {role} is now a {level} of {grant_role(where, level, role)}")


def _version_text(version: int | None) -> str:
    return "" if version is None else f" (schema version {version})"


def promote(
    name: Annotated[str | None, argument("KERNEL", "A kernel, or a workload's id.")] = None,
    every: Annotated[bool, option("--all", "Every workload in the store.")] = False,
    take_back: Annotated[bool, option("--withdraw", "Production no longer uses these.")] = False,
    note: Annotated[str, option("--note TEXT", "Why.")] = "",
    dry_run: Annotated[bool, option("--dry-run", "Only show what would change.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Let production use the current results of a shared store.

    Processes with WHET_TRUST=promoted use only what was promoted: results that are tuned later do
    not reach them before they are promoted too. Needs the role promoter, or the store's owner. The
    exit code is 1 if a workload had nothing to promote.

    Examples:
      whet store promote matmul --note "release 12"
      whet store promote --all --dry-run
      whet store promote matmul --withdraw
    """
    from whet.store.postgres.verified import promote as put_forward
    from whet.store.postgres.verified import withdraw
    from whet.store.upkeep import promotable

    if (name is None) is not every:
        raise UsageError("name a kernel or a workload, or use --all for all of them")
    with promotable(resolved(store=store).settings.store) as opened:
        workloads = [one.workload for one in chosen(opened, name)]
        act = withdraw if take_back else put_forward
        reports = act(opened, workloads, note=note, dry_run=dry_run)
    if json:
        rows = [_promotion_json(one) for one in reports]
        print_json({"v": 1, "store": opened.location, "dry_run": dry_run, "workloads": rows})
    else:
        lines = [f"{problem_text(one.workload)}{_outcome(one)}" for one in reports]
        print_lines([*lines, "nothing was changed (--dry-run)"] if dry_run else lines)
    if any(one.reason for one in reports):
        raise typer.Exit(1)


def _outcome(report: PromotionReport) -> str:
    if report.reason:
        return f" {report.reason}"
    if report.config is None:
        return ": withdrawn"
    return f": {report.config} promoted{'' if report.changed else ', as before'}"


def _promotion_json(report: PromotionReport) -> dict[str, Any]:
    return {
        "workload": report.workload.id,
        "kernel": report.workload.kernel,
        "config": None if report.config is None else dict(report.config),
        "run": report.run_id,
        "changed": report.changed,
        "reason": report.reason,
    }


def key(
    context: typer.Context,
    new: Annotated[
        str | None, option("--new PATH", "Create a key: where to write its private part.")
    ] = None,
    name: Annotated[str, option("--name NAME", "Whose key it is.", "--new")] = "",
    revoke: Annotated[
        str | None,
        option("--revoke KEY-ID", "Refuse all that a key, the first word of its line, has signed."),
    ] = None,
    reason: Annotated[str, option("--reason TEXT", "Why.", "--revoke")] = "",
    store: StoreOption = None,
) -> None:
    """Create a key that signs results and print its public part, or revoke one.

    Use a key with WHET_SIGNING_KEY=PATH. Readers add the printed line to the file that their
    WHET_TRUSTED_KEYS names, and then use only what one of the keys in it has signed. Every reader
    that requires signatures refuses a revoked key from the next look-up on, whenever it has signed.
    This cannot be taken back. It needs the role promoter, or the store's owner.

    Examples:
      whet store key --new ~/.config/whet/signing.pem --name tuner1
      whet store key --revoke 3f2a9c0b11d4e5f6 --reason "laptop lost"
    """
    if (new is None) == (revoke is None):
        raise UsageError("use either --new PATH or --revoke KEY-ID")
    refuse_others(context, "--new" if new is not None else "--revoke")
    if new is not None:
        from whet.store.postgres.signing import SigningKey

        print(SigningKey.create(new).line(name))
    elif revoke is not None:
        from whet.store.upkeep import revoke_key

        where = resolved(store=store).settings.store
        state = "is now" if revoke_key(where, revoke, reason) else "was already"
        print(f"key {revoke} {state} revoked in {store_place(where)}")


def listing(location: str, size: int | None, known: list[WorkloadSummary]) -> list[str]:
    count = count_text(len(known), "workload")
    lines = [location, count if size is None else f"{count}, {bytes_text(size)}"]
    sources = source_labels([one.workload for one in known])
    layout = [
        Column("id"),
        flexible("workload"),
        *([flexible("source")] if sources else []),
        right("configs"),
        right("ok"),
        right("trials"),
        right("best"),
        Column("last tuned"),
    ]
    rows = [
        (
            one.workload.id[:SHORT_ID],
            problem_text(one.workload),
            *([sources.get(one.workload.id, "")] if sources else []),
            f"{one.configs:,}",
            f"{one.ok:,}",
            f"{one.trials:,}",
            ns_text(one.median_ns),
            moment_text(one.active),
        )
        for one in known
    ]
    if not known:
        return lines
    lines += ["", *table(layout, rows, columns())]
    if any(one.trials > one.configs for one in known):
        text = (
            "'trials' counts every stored result; the latest for a config counts (whet show "
            "trials --all)"
        )
        lines += ["", *wrap(text, page(), indent=2)]
    contested = contested_lines(known, columns())
    return [*lines, *([""] if contested else []), *contested]


def counts_text(workloads: int, trials: int, runs: int) -> str:
    return ", ".join(
        (count_text(workloads, "workload"), count_text(trials, "trial"), count_text(runs, "run"))
    )


def by_device(workloads: list[Workload]) -> list[str]:
    """`  3 workloads of NVIDIA H200 (sm_90, driver 570.12)`, for every device."""
    counts = Counter(identity(workload.device) for workload in workloads)
    return [
        f"  {count_text(n, 'workload')} of {device_text(device)}"
        for device, n in counts.most_common()
    ]


def pick_lines(picks: Sequence[MergedPick]) -> list[str]:
    """Every pick that a merge has changed or made contested."""
    lines: list[str] = []
    for one in picks:
        name, now = problem_text(one.workload), f"[{one.now.trial.config}]"
        rivals = " and ".join(f"[{rival.config}]" for rival in one.now.rivals)
        if one.changed and one.before is not None:
            said = f"pick changed: {name}: [{one.before.config}] -> {now}"
            said += f", contested by {rivals}" if rivals else ""
        else:
            said = f"contested: {name}: {now} stays, but {rivals} may be faster"
        lines += ["  " + line for line in wrap(said, page() - 2, indent=2)]
    if any(one.now.rivals for one in picks):
        lines += wrap(
            "for a contested pick, the stores disagree on which config is faster; tune it "
            "again to measure them side by side",
            page(),
        )
    return lines


def picks_json(picks: Sequence[MergedPick]) -> list[dict[str, Any]]:
    return [
        {
            "workload": one.workload.to_json(),
            "before": None if one.before is None else dict(one.before.config),
            "now": dict(one.now.trial.config),
            "changed": one.changed,
            "contested": [dict(rival.config) for rival in one.now.rivals],
        }
        for one in picks
    ]


def namesakes(store: StoreReader) -> list[str]:
    every = (one.workload.device for one in store.workloads())
    return [
        line
        for several in lookalikes(every)
        for line in wrap(
            f"note: '{several[0].name}' stands for {len(several)} different devices, whose "
            f"results are kept separate: {', '.join(device_text(device) for device in several)}",
            page(),
            indent=2,
        )
    ]


# A store may come from anybody: only programs of these names are asked for their version.
def _cluster(address: str, json: bool) -> None:
    from whet.engine.executors.ray_cluster import read_cluster

    found = read_cluster(address)
    if json:
        print_json(found)
    else:
        print_lines(cluster_text(found, columns()))


def cluster_text(found: Mapping[str, Any], width: int) -> list[str]:
    machines = [
        (one["name"], str(one["cpus"]), str(one["gpus"]), _building(found, one["name"]))
        for one in found["machines"]
    ]
    layout = [Column("machine"), right("cores"), right("GPUs"), flexible("building")]
    lines = table(layout, machines, width)
    if "devices" not in found:
        return [*lines, "", "no tuning is under way"]
    devices = [(name, doing or "idle") for name, doing in found["devices"].items()]
    lines += ["", *table([Column("device"), flexible("doing")], devices, width)]
    return [*lines, *(["", *found["refused"]] if found["refused"] else [])]


def _building(found: Mapping[str, Any], name: str) -> str:
    one = found.get("builds", {}).get(name)
    if one is None:
        return "–"
    return ", ".join(one["building"]) or "idle"
