"""`whet store promote`, `keygen` and `revoke`: what of a shared store is to be relied on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, StoreOption, resolved
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.store.postgres.promoting import PromotionReport

PROMOTE_EXAMPLES = """\b
Examples:
  whet store promote matmul --note "release 12"
  whet store promote --all --dry-run
  whet store promote matmul --withdraw
"""
KEYGEN_EXAMPLES = """\b
Examples:
  whet store keygen ~/.config/whet/signing.pem --name tuner1
"""
REVOKE_EXAMPLES = """\b
Examples:
  whet store revoke 3f2a9c0b11d4e5f6 --reason "laptop lost"
"""


def promote(
    name: Annotated[
        str | None, typer.Argument(metavar="[KERNEL]", help="A kernel, or a workload's id.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every workload in the store.")] = False,
    take_back: Annotated[
        bool, typer.Option("--withdraw", help="Production no longer uses these.")
    ] = False,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Let production use the current results of a shared store.

    Processes with WHET_TRUST=promoted use only what was promoted: results that are tuned later do
    not reach them before they are promoted too. Needs the role promoter, or the store's owner. The
    exit code is 1 if a workload had nothing to promote.
    """
    from whet.cli.arguments.reading import chosen, problem_text
    from whet.cli.terminal.output import print_json, print_lines
    from whet.store.postgres.promoting import promote as put_forward
    from whet.store.postgres.promoting import withdraw
    from whet.store.upkeep import promotable

    if (name is None) is not every:
        raise UsageError("name a kernel or a workload, or use --all for all of them")
    with promotable(resolved(store=store).settings.store) as opened:
        workloads = [one.workload for one in chosen(opened, name)]
        act = withdraw if take_back else put_forward
        reports = act(opened, workloads, note=note, dry_run=dry_run)
    if json:
        rows = [_as_json(one) for one in reports]
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


def _as_json(report: PromotionReport) -> dict[str, Any]:
    return {
        "workload": report.workload.id,
        "kernel": report.workload.kernel,
        "config": None if report.config is None else dict(report.config),
        "run": report.run_id,
        "changed": report.changed,
        "reason": report.reason,
    }


def keygen(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Where to write the private key.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Whose key it is.")] = "",
) -> None:
    """Create a key that signs results, and print its public part.

    Use the key with WHET_SIGNING_KEY=PATH. Readers add the printed line to the file that their
    WHET_TRUSTED_KEYS names, and then use only what one of the keys in it has signed.
    """
    from whet.store.postgres.signing import SigningKey

    print(SigningKey.create(path).line(name))


def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY-ID", help="The first word of its line.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")] = "",
    store: StoreOption = None,
) -> None:
    """Refuse everything that a key has signed.

    Every reader that requires signatures refuses it from the next look-up on, whenever it was
    signed. This cannot be taken back. Needs the role promoter, or the store's owner.
    """
    from whet.store import store_place
    from whet.store.upkeep import revoke_key

    where = resolved(store=store).settings.store
    new = revoke_key(where, key, reason)
    print(f"key {key} {'is now' if new else 'was already'} revoked in {store_place(where)}")
