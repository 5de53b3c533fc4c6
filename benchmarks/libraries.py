"""What tuning real libraries costs, with Triton's own autotuner and with whet.

    python benchmarks/libraries.py FOLDER [PROGRAM …] [--ways install,warmup,…] [--json OUT]

FOLDER has `fla/`, `mamba_ssm/` (with an empty `__init__.py`), `flash_attn/` (the same) and
`attorch/` of the public repositories in it, and einops where that is not installed. Each program
is one forward and backward step, and each way to run it has a process and caches of its own:

    install   whet.install(), then the step: each call waits for its kernel
    warmup    whet.install(), then whet.warmup(step)
    quick     the same with effort="quick"
    stock     Triton's own, cold, cut at --stock-limit
    picks     Triton's own on the binaries that `warmup` has built: what it picks
    again     a new process with `warmup`'s store and binaries, importing whet counted; --times
    chosen    the same without whet, each kernel's configs set to the one that was chosen; --times

Kernel time is that of all kernels of one step, by torch's profiler. Results are compared with those
of `picks`, and these with themselves.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from library_programs import PROGRAMS, made_step

WAYS = ("install", "warmup", "quick", "picks", "again", "chosen", "stock")
STEPS = 5
SOURCE = Path(__file__).parents[1] / "src" / "whet"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--ways", default="install,warmup,quick,picks,again,chosen")
    parser.add_argument("--stock-limit", type=float, default=120.0)
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for any other way")
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    sys.path.insert(0, str(asked.folder.resolve()))
    import torch  # noqa: F401 - imported once, for all processes that are forked from this one

    # As installed packages have it: some machines keep Python from writing byte code.
    for sources in (SOURCE, asked.folder):
        compileall.compile_dir(sources, quiet=2, workers=0)
    results: dict[str, Any] = {}
    for name in asked.programs or PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measured(name, asked, Path(folder))
        print(table(name, results[name], os.cpu_count() or 1), flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(results, indent=1))
    return 0


def measured(name: str, asked: Any, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for way in asked.ways.split(","):
        if way in ("again", "chosen"):
            continue
        place = folder / way
        place.mkdir()
        if way == "picks":
            if not (folder / "warmup" / "triton").exists():
                found[way] = {"failed": "no binaries of 'warmup' to pick from"}
                continue
            shutil.copytree(folder / "warmup" / "triton", place / "triton")
            for known in (place / "triton").rglob("*.autotune.json"):
                known.unlink()  # where a library asks for it, Triton's own file of picks
        limit = asked.stock_limit if way in ("stock", "picks") else asked.limit
        found[way] = forked(partial(run, name, way, place), place, limit)
    for way in [way for way in ("again", "chosen") if way in asked.ways.split(",")]:
        found[way] = []
    warmed = (folder / "warmup" / "chosen.json").exists()
    times = asked.times if "again" in found and warmed else 0
    with suppress(KeyboardInterrupt):  # what was measured until then is shown
        for number in range(times):  # in turns
            for way in ("again", "chosen"):
                if way in found:
                    place = folder / f"{way}{number}"
                    shutil.copytree(folder / "warmup", place)
                    one = forked(partial(repeated, name, way, place), place, 60)
                    found[way].append(one.get("seconds"))
    compare(found, folder)
    return found


def forked(act: Callable[[], dict[str, Any]], place: Path, limit_s: float) -> dict[str, Any]:
    """In a process of its own, which is killed with all its children when its time is up."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setsid()
            os.environ["TRITON_CACHE_DIR"] = str(place / "triton")
            os.environ["WHET_STORE"] = str(place / "store.db")
            (place / "found.json").write_text(json.dumps(act()))
            code = 0
        except BaseException:
            import traceback

            (place / "error.txt").write_text(traceback.format_exc())
        finally:
            sys.stdout.flush()
            os._exit(code)
    start = time.monotonic()
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() - start > limit_s:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"cut": limit_s}
        time.sleep(0.02)
    if not (place / "found.json").exists():
        text = (place / "error.txt").read_text() if (place / "error.txt").exists() else "died"
        print(text[-2000:], file=sys.stderr)
        return {"failed": text.strip().splitlines()[-1]}
    found: dict[str, Any] = json.loads((place / "found.json").read_text())
    return found


def run(name: str, way: str, place: Path) -> dict[str, Any]:
    import torch

    torch.zeros(1, device="cuda")
    whet: Any = None
    if way not in ("stock", "picks"):
        whet = importlib.import_module("whet")
        whet.install()
    tensors, step = made_step(PROGRAMS[name], torch)
    torch.cuda.synchronize()
    start = time.perf_counter()
    warm = None
    if whet is not None and way in ("warmup", "quick"):
        effort = {"effort": "quick"} if way == "quick" else {}
        warm = whet.warmup(step, progress=partial(_said, time.perf_counter()), **effort)
    else:
        step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    out = step()
    found: dict[str, Any] = {"seconds": seconds, "kernel_us": kernel_us(torch, step)}
    if warm is not None:
        found["calls"], found["kernels"] = warm.calls, len(warm.kernels)
        found["complete"] = warm.complete
    if whet is not None:
        found |= accounts()
    results = {"out": out, **{key: tensor.grad for key, tensor in tensors.items()}}
    torch.save({k: v.detach().cpu() for k, v in results.items()}, place / "results.pt")
    if way == "picks":
        out = step()
        again = {"out": out, **{key: tensor.grad for key, tensor in tensors.items()}}
        torch.save({k: v.detach().cpu() for k, v in again.items()}, place / "again.pt")
    if way == "warmup":
        (place / "chosen.json").write_text(json.dumps(chosen()))
    return found


def _said(start: float, text: str) -> None:
    if os.environ.get("VERBOSE"):
        print(f"{time.perf_counter() - start:7.2f} {text}", file=sys.stderr)


def repeated(name: str, way: str, place: Path) -> dict[str, Any]:
    """The first step of a later process."""
    import torch

    torch.zeros(1, device="cuda")
    _, step = made_step(PROGRAMS[name], torch)
    if way == "chosen":
        set_chosen(json.loads((place / "chosen.json").read_text()))
    torch.cuda.synchronize()
    start = time.perf_counter()
    if way == "again":
        import whet

        whet.install()
    step()
    torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - start}


def live() -> list[Any]:
    import gc

    from triton.runtime.autotuner import Autotuner

    return [one for one in gc.get_objects() if issubclass(type(one), Autotuner)]


def chosen() -> dict[str, int]:
    """The place of the chosen config in each kernel's list, of the latest key."""
    best = {where(one): (one, vars(one).get("best_config")) for one in live()}
    return {
        name: list(one.configs).index(config)
        for name, (one, config) in best.items()
        if config is not None and config in list(one.configs)
    }


def set_chosen(places: dict[str, int]) -> None:
    for one in live():
        if where(one) in places:
            one.configs = [one.configs[places[where(one)]]]


def where(one: Any) -> str:
    code = one.base_fn.__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}:{one.base_fn.__name__}"


def kernel_us(torch: Any, step: Callable[[], Any]) -> float:
    from torch.profiler import ProfilerActivity, profile

    for _ in range(2):
        step()
    torch.cuda.synchronize()
    totals = []
    for _ in range(STEPS):
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            step()
            torch.cuda.synchronize()
        totals.append(sum(event.self_device_time_total for event in seen.key_averages()))
    return float(statistics.median(totals))


def accounts() -> dict[str, Any]:
    """What the store says of it: work by phase, the slowest build of each key, configs by end."""
    import whet

    slowest: list[float] = []
    floors: list[float] = []
    cores = os.cpu_count() or 1
    wall: dict[str, float] = {}
    ends: dict[str, int] = {}
    builds = 0.0
    with whet.open_store(os.environ["WHET_STORE"], read_only=True) as store:
        known = store.workloads()
        for one in known:
            seconds = [t.cost.work.get("build", 0.0) for t in store.trials(one.workload.id)]
            slowest.append(max(seconds, default=0.0))
            floors.append(max(slowest[-1], sum(seconds) / cores))
            builds += sum(seconds)
            for trial in store.trials(one.workload.id):
                ends[str(trial.status)] = ends.get(str(trial.status), 0) + 1
            for ran in store.runs(one.workload.id):
                for phase, spent in ran.cost.wall.items():
                    wall[phase] = wall.get(phase, 0.0) + spent
    return {
        "keys": len(slowest),
        "slowest_s": sum(slowest),
        "floor_s": sum(floors),
        "build_s": builds,
        "wall": {phase: round(spent, 3) for phase, spent in wall.items()},
        "trials": ends,
    }


def compare(found: dict[str, Any], folder: Path) -> None:
    import torch

    reference = folder / "picks" / "results.pt"
    if not reference.exists():
        return
    base = torch.load(reference)
    for way in ("picks", "install", "warmup", "quick"):
        path = folder / way / ("again.pt" if way == "picks" else "results.pt")
        if path.exists():
            other = torch.load(path)
            found[way]["difference"] = max(
                float((other[key].float() - base[key].float()).abs().max())
                / max(1e-30, float(base[key].float().abs().max()))
                for key in base
            )


def table(name: str, found: dict[str, Any], cores: int) -> str:
    lines = [f"\n{name} ({PROGRAMS[name].repository})"]
    for way in WAYS:
        one = found.get(way)
        if isinstance(one, list):
            known = [seconds for seconds in one if seconds is not None]
            if known:
                median, low, high = statistics.median(known), min(known), max(known)
                lines.append(f"  {way:8} {median:7.3f} s  ({low:.3f} to {high:.3f}, {len(known)})")
        elif one is not None and "seconds" in one:
            lines.append(f"  {way:8} {one['seconds']:7.2f} s  {_details(one, cores)}")
        elif one is not None:
            lines.append(f"  {way:8} {one}")
    return "\n".join(lines)


def _details(one: dict[str, Any], cores: int) -> str:
    parts = [f"kernels {one['kernel_us']:.0f} µs"]
    if "difference" in one:
        parts.append(f"results within {one['difference']:.1e}")
    if "keys" in one:
        wall = one["wall"]
        parts.append(f"{one['keys']} keys, {sum(one['trials'].values())} configs")
        parts.append(f"slowest builds {one['slowest_s']:.1f} s")
        if "floor_s" in one:
            parts.append(f"one key after another {one['floor_s']:.1f} s")
        parts.append(f"builds ÷ {cores} = {one['build_s'] / cores:.1f} s")
        shown = ("waiting", "load", "measure", "check", "search", "idle")
        parts.append(" ".join(f"{p} {wall[p]:.1f}" for p in shown if wall.get(p, 0) >= 0.05))
    if "calls" in one:
        parts.append(f"{one['calls']} calls" + ("" if one["complete"] else ", not complete"))
    return "; ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
