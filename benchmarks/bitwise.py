"""What the same bits cost: `check="bitwise"` over libraries, `check="deterministic"` over atomics.

    python benchmarks/bitwise.py FOLDER [PROGRAM …] [--limit 220] [--seeds 20] [--json OUT]

FOLDER and the programs are those of `libraries.py`. Each program is warmed up in a process and a
store of its own with a policy file that asks for `check = "bitwise"` of every kernel. As soon as a
kernel is tuned it is verified on the same arguments: the reference (the author's first config that
ran and was not refused) and the pick run on `--seeds` sets of random inputs that the check has not
seen, and every bit of what they write is compared. Then the pick and the fastest config of all,
refused ones included, are timed in turns: `price` is how many times as fast the free best is.

After that, kernels with atomics (`atomic_kernels.py`): `distinct` is how many different results
the first config has in 50 launches, `refused` how many of its configs `check="deterministic"`
refuses. A kernel is shown to vary if `distinct` is more than one.

The table comes last. `--limit` is for all of it, in seconds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from libraries import forked
from library_programs import PROGRAMS, made_step

ROUNDS = 15
LAUNCHES = 50
# What the kernels with atomics may take of the limit.
ATOMICS_S = 60.0


@dataclass
class Verified:
    """`equal` counts the seeds on which the pick wrote the reference's bits."""

    kernel: str
    configs: int
    refused: int = 0
    seeds: int = 0
    equal: int = 0
    price: float = 1.0
    pick_us: float = 0.0
    free_us: float = 0.0
    varies: bool = False
    only_real: bool = False
    note: str = ""


@dataclass
class Program:
    seconds: float = 0.0
    complete: bool = False
    kernels: list[Verified] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--limit", type=float, default=220.0)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    deadline = time.monotonic() + asked.limit
    sys.path.insert(0, str(asked.folder.resolve()))
    import torch  # noqa: F401 - imported once, for all processes that are forked from this one

    found: dict[str, Any] = {"programs": {}, "atomics": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = folder / "atomics"
        atomics = forked(in_place(partial(atomic_rows, place), place), place, ATOMICS_S)
        found["atomics"] = noted(place)
        found["atomics_ended"] = {key: atomics[key] for key in ("cut", "failed") if key in atomics}
        names = asked.programs or list(PROGRAMS)
        for number, program in enumerate(names):
            left = deadline - time.monotonic()
            # An even share of what is left; what one does not need the next ones get.
            share = left / (len(names) - number)
            if share < 5.0:
                print(f"{program}: no time left", flush=True)
                continue
            place = folder / program
            act = in_place(partial(program_rows, program, asked.seeds, 0.8 * share, place), place)
            one = forked(act, place, max(share, left if number == len(names) - 1 else 1.4 * share))
            found["programs"][program] = {"kernels": noted(place), **one}
            print(f"{program}: {line(found['programs'][program])}", flush=True)
            if asked.json:
                asked.json.write_text(json.dumps(found, indent=1))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))
    print(table(found))
    return 0


def in_place(act: Any, place: Path) -> Any:
    """With a policy that asks every kernel for the same bits."""
    place.mkdir()
    (place / "whet.toml").write_text('[[kernel]]\nmatch = "*"\ncheck = "bitwise"\n')

    def run() -> Any:
        os.environ["WHET_POLICY"] = str(place / "whet.toml")
        return act()

    return run


def note(rows: list[Any], place: Path) -> None:
    """For a process that is cut before its end: what it has so far is not lost."""
    beside = place / "rows.part"
    beside.write_text(json.dumps(rows))
    beside.replace(place / "rows.json")


def noted(place: Path) -> list[dict[str, Any]]:
    path = place / "rows.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return rows


def program_rows(name: str, seeds: int, budget_s: float, place: Path) -> dict[str, Any]:
    import torch

    torch.zeros(1, device="cuda")
    whet = importlib.import_module("whet")
    whet.install()
    rows: list[Verified] = []
    verify_every_tuning(rows, seeds, place)
    _, step = made_step(PROGRAMS[name], torch)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm = whet.warmup(step, budget=f"{budget_s:.0f}s", progress=False)
    seconds = time.perf_counter() - start
    return asdict(Program(seconds, warm.complete, rows))


def verify_every_tuning(rows: list[Verified], seeds: int, place: Path) -> None:
    """Behind each tuning, where the arguments are at hand."""
    from whet.targets.triton.autotuner import Autotuner

    benchmark = Autotuner._benchmark

    def and_verify(self: Any, key: Any, passed: Any, args: Any, kwargs: Any, configs: Any) -> bool:
        measured = benchmark(self, key, passed, args, kwargs, configs)
        row = Verified(str(self.base_fn.__name__), len(configs))
        try:
            verify(self, args, kwargs, configs, self.cache[key], row, seeds)
        except Exception as error:
            row.note = f"{type(error).__name__}: {error}"[:200]
        rows.append(row)
        note([asdict(one) for one in rows], place)
        return measured

    Autotuner._benchmark = and_verify  # type: ignore[method-assign]


def verify(
    tuner: Any, args: Any, kwargs: Any, configs: Any, pick: Any, row: Verified, seeds: int
) -> None:
    from whet.measure.bench.bits import BITS, FREE_NS, ONLY_REAL, VARIES
    from whet.targets.triton.call import Call, LoadedTriton

    result = tuner.whet_result
    if result is None or not tuner.whet_own_benchmark:
        row.note = "has a benchmark of its own"
        return
    trials = {trial.config.id: trial for trial in result.trials}
    plain = {one: _plain(one) for one in configs}
    refused = [one for one in configs if FREE_NS in facts(trials, plain[one])]
    # Where the author's first config does not fit the device, another one is the reference, and
    # the next in the list may have been refused.
    ran = [one for one in configs if BITS in facts(trials, plain[one]) and one not in refused]
    row.refused = len(refused)
    row.varies = bool(ran) and VARIES in facts(trials, plain[ran[0]])
    row.only_real = bool(ran) and ONLY_REAL in facts(trials, plain[ran[0]])
    if not ran:
        row.note = "no config was examined"
        return
    call = Call(tuner, args, kwargs)
    loaded = {one: LoadedTriton(call, one) for one in {ran[0], pick}}
    if not row.varies:
        row.seeds = seeds
        row.equal = sum(
            len({hashes(call, loaded[one], seed) for one in (ran[0], pick)}) == 1
            for seed in range(seeds)
        )
    medians = {
        one: trial.median_ns
        for one in configs
        if (trial := trials.get(plain[one].id)) is not None and trial.median_ns
    }
    medians |= {one: float(facts(trials, plain[one])[FREE_NS]) for one in refused}
    free = min(medians, key=lambda one: medians[one] or 0.0)
    if free is not pick:
        loaded[free] = LoadedTriton(call, free)
        times = in_turns(tuner, [loaded[pick], loaded[free]])
        row.pick_us, row.free_us = (statistics.median(some) / 1e3 for some in times)
        row.price = max(1.0, row.pick_us / row.free_us)
    else:
        row.pick_us = row.free_us = (medians[free] or 0.0) / 1e3
    call.restore()
    call.let_go()


def _plain(config: Any) -> Any:
    from whet.targets.triton.keys import plain_config

    return plain_config(config)


def facts(trials: Mapping[str, Any], config: Any) -> Mapping[str, Any]:
    trial = trials.get(config.id)
    return {} if trial is None else trial.facts


def hashes(call: Any, loaded: Any, seed: int) -> tuple[str, ...]:
    """What a config writes on inputs like the real ones, but other numbers."""
    import torch

    from whet.targets.triton.call import _address, touched
    from whet.targets.triton.checks import Written, tensor_hash

    kernel = loaded._run(*call.args, **{**loaded._keywords(), "warmup": True})
    kernel = kernel.result() if hasattr(kernel, "result") else kernel
    found = touched(kernel)
    args = Written(call.named, found.written, (*found.read, *found.updated), _address)
    outputs, inputs = args.outputs(), args.inputs()
    before = {name: one.data.clone() for name, one in {**outputs, **inputs}.items()}
    try:
        for number, tensor in enumerate(inputs.values()):
            if 0 in tensor.stride() or tensor.element_size() == 1:
                continue
            noise = torch.Generator(device=tensor.device).manual_seed(1000 * seed + number)
            values = tensor.data.float()
            scale = float(values.std(correction=0).nan_to_num(1.0)) or 1.0
            tensor.data.normal_(float(values.mean().nan_to_num()), scale, generator=noise)
        if loaded.before is not None:
            loaded.before()
        loaded.repeat(1)
        written = tuple(tensor_hash(one) for one in outputs.values())
        if loaded.after is not None:
            loaded.after()
        return written
    finally:
        for name, one in {**outputs, **inputs}.items():
            if 0 not in one.stride():
                one.data.copy_(before[name])


def in_turns(tuner: Any, rivals: list[Any]) -> list[list[float]]:
    timer = tuner.whet_timer()
    warm = [timer.warm(one) for one in rivals]
    taken: list[list[float]] = [[] for _ in rivals]
    for _ in range(ROUNDS):
        for place, one in enumerate(rivals):
            taken[place] += timer.measure(one, 1, warm[place]).samples
    return taken


def atomic_rows(place: Path) -> dict[str, Any]:
    """In a process of its own: a spin lock that never opens must not hold up the rest."""
    import torch
    import triton

    whet = importlib.import_module("whet")
    from atomic_kernels import KERNELS
    from whet.targets.triton.checks import tensor_hash

    os.environ["WHET_POLICY"] = "none"
    rows = []
    for one in KERNELS:
        torch.manual_seed(0)
        made = one.make(torch, 2048, "cuda")
        distinct = set()
        for _ in range(LAUNCHES):
            for name in one.zeroed:
                made[name].zero_()
            first = one.configs[0]
            one.kernel[one.grid({**made, **first})](*made.values(), **first)
            distinct.add(tensor_hash(made[one.out]))
        wrong = made[one.out].double() - one.expected({**made, **first}).view_as(made[one.out])
        scale = made[one.out].double().abs().max()
        tuner = whet.autotune(
            configs=[triton.Config(config) for config in one.configs],
            key=[],
            reset_to_zero=list(one.zeroed),
            check="deterministic",
        )(one.kernel)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tuner[one.grid](*made.values())
        with whet.open_store(os.environ["WHET_STORE"]) as store:
            trials = [
                trial
                for known in store.workloads(one.name)
                for trial in store.trials(known.workload.id)
            ]
        refused = [trial for trial in trials if str(trial.status) == "wrong_result"]
        rows.append(
            {
                "kernel": one.name,
                "distinct": len(distinct),
                "configs": len(one.configs),
                "refused": len(refused),
                "error": float(wrong.abs().max() / scale),
            }
        )
        print(f"{one.name}: {rows[-1]}", flush=True)
        note(rows, place)
    return {}


def line(one: Mapping[str, Any]) -> str:
    kernels = one["kernels"]
    if "seconds" not in one:
        ended = {key: value for key, value in one.items() if key != "kernels"}
        return f"{len(kernels)} tunings, then {ended}"
    return f"{len(kernels)} tunings in {one['seconds']:.1f} s, complete: {one['complete']}"


def table(found: Mapping[str, Any]) -> str:
    lines = ["", "program      kernels  refused  seeds equal   mean price  by time  worst"]
    every: list[dict[str, Any]] = []
    for name, one in found["programs"].items():
        kernels = one.get("kernels", [])
        every += [{**kernel, "program": name} for kernel in kernels]
        lines.append(row(name, kernels))
    lines.append(row("all", every))
    compared = [one for one in every if one["seeds"]]
    odd = [one for one in compared if one["equal"] != one["seeds"]]
    lines.append(f"picks that are not bit-equal to the reference: {len(odd)} of {len(compared)}")
    lines += [f"  {one['program']} {one['kernel']}: {one['equal']}/{one['seeds']}" for one in odd]
    for what in ("varies", "only_real", "note"):
        some = [f"{one['program']} {one['kernel']}" for one in every if one[what]]
        if some:
            lines.append(f"{what}: {', '.join(some)}")
    notes = sorted({one["note"] for one in every if one["note"]})
    lines += [f"  {note}" for note in notes]
    lines += ["", "atomics            distinct of 50   refused"]
    for one in found["atomics"]:
        refused = f"{one['refused']} of {one['configs']}"
        lines.append(f"{one['kernel']:<18} {one['distinct']:>14}   {refused}")
    varying = [one for one in found["atomics"] if one["distinct"] > 1]
    caught = [one for one in varying if one["refused"] == one["configs"]]
    lines.append(f"shown to vary: {len(varying)}, of these refused: {len(caught)}")
    if found.get("atomics_ended"):
        lines.append(f"atomics ended early: {found['atomics_ended']}")
    return "\n".join(lines)


def row(name: str, kernels: list[dict[str, Any]]) -> str:
    timed = [one for one in kernels if one["free_us"]]
    if not timed:
        return f"{name:<12} {len(kernels):>7}"
    mean = statistics.mean(one["price"] for one in timed)
    whole = sum(one["free_us"] * one["price"] for one in timed) / sum(o["free_us"] for o in timed)
    worst = max(timed, key=lambda one: float(one["price"]))
    refused = sum(one["refused"] for one in kernels)
    seeds, equal = (sum(one[key] for one in kernels) for key in ("seeds", "equal"))
    return (
        f"{name:<12} {len(kernels):>7}  {refused:>7}  {equal:>5}/{seeds:<5}   {mean:>9.3f}  "
        f"{whole:>7.3f}  {worst['price']:.3f} {worst['kernel']}"
    )


if __name__ == "__main__":
    sys.exit(main())
