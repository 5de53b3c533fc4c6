"""Real libraries served without a compiler: recorded, packed, preloaded in a new process.

    python benchmarks/serving.py FOLDER [PROGRAM …] [--limit SECONDS] [--json OUT]

FOLDER has `fla/` and `mamba_ssm/` (with an empty `__init__.py`) of the public repositories in it,
and einops where that is not installed. Each program is a forward and a backward pass, in five
sizes, one of them with a length that 16 does not divide; every kernel has its smallest config
(WHET_MODE=off), so that nothing is tuned: the first one of a list may ask for more shared memory
than there is.

    record    WHET_JIT=record, one process for each program and size, all at once, no cache: the
              first step is what it costs without
    pack      what `whet pack --jit` does
    replay    one new process with an empty cache: whet.preload, whet.sealed, torch alone warmed
              up, then every step

Counted in `replay`: compiles, by Triton's own listener; starts of a C compiler or an assembler, by
Python's audit hook; compiles that the seal has reported. Each kernel's first call is compared with
the median of its later ones, both with the device idle before and after. `--fake` needs no GPU: the
fake driver launches nothing, so that times of calls mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
STEPS = 6
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "clang++")

# batch, length, heads, width; for mamba2 also the state and the chunk
SIZES: dict[str, list[tuple[int, ...]]] = {
    "gla": [
        (4, 2048, 8, 128),
        (2, 1024, 4, 64),
        (1, 4096, 16, 128),
        (1, 512, 2, 64),
        (3, 500, 5, 64),
    ],
    "kda": [
        (4, 2048, 8, 128),
        (2, 1024, 4, 64),
        (1, 4096, 16, 128),
        (1, 512, 2, 64),
        (3, 500, 5, 64),
    ],
    "mamba2": [
        (4, 2048, 64, 64, 128, 256),
        (2, 1024, 32, 64, 64, 256),
        (1, 512, 16, 64, 128, 128),
        (1, 512, 8, 32, 64, 64),
        (3, 500, 24, 64, 128, 256),
    ],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--limit", type=float, default=230.0, help="seconds for everything")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--act", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.programs = asked.programs or list(SIZES)
    sys.path[:0] = [str(SOURCE), str(asked.folder.resolve())]
    if asked.act:
        act = {"record": record, "pack": pack, "replay": replay}[asked.act]
        asked.out.write_text(json.dumps(act(asked)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = measured(asked, Path(folder))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))
    print(table(found), flush=True)
    return 0


def measured(asked: Any, folder: Path) -> dict[str, Any]:
    deadline = time.monotonic() + asked.limit
    variables = {"WHET_STORE": str(folder / "store.db"), "WHET_MODE": "off"}
    start = time.monotonic()
    jobs = [(name, at) for name in asked.programs for at in range(len(SIZES[name]))]
    started = [
        launched(asked, "record", folder, [f"{name}:{at}"], variables | {"WHET_JIT": "record"})
        for name, at in jobs
    ]
    recorded = [finished(one, deadline) for one in started]
    took = time.monotonic() - start
    print(f"recorded in {took:.1f} s", flush=True)
    packed = finished(launched(asked, "pack", folder, asked.programs, variables), deadline)
    print(f"packed: {packed}", flush=True)
    replayed = finished(
        launched(
            asked,
            "replay",
            folder,
            asked.programs,
            # Libraries ask for Triton's driver, which has one of its own, when they are imported.
            variables | {"WHET_JIT": "warn", "WHET_PRELOAD": str(folder / "serve.whet")},
        ),
        deadline,
    )
    without = {f"{name}:{at}": one for (name, at), one in zip(jobs, recorded, strict=True)}
    return {"record_s": took, "without": without, "pack": packed, "replay": replayed}


def launched(
    asked: Any, act: str, folder: Path, programs: list[str], variables: dict[str, str]
) -> tuple[subprocess.Popen[str], Path]:
    """Each process has a Triton cache of its own."""
    name = f"{act}-{'-'.join(programs).replace(':', '')}"
    out = folder / f"{name}.json"
    command = [sys.executable, __file__, str(asked.folder), *programs, "--act", act]
    command += ["--out", str(out), *(["--fake"] if asked.fake else [])]
    environment = {
        **os.environ,
        **variables,
        "TRITON_CACHE_DIR": str(folder / f"triton-{name}"),
        "SERVING_BUNDLE": str(folder / "serve.whet"),
    }
    log = (folder / f"{name}.log").open("w")
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True), out


def finished(one: tuple[subprocess.Popen[str], Path], deadline: float) -> dict[str, Any]:
    process, out = one
    try:
        process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return {"failed": "cut by --limit"}
    if not out.exists():
        lines = out.with_suffix(".log").read_text().strip().splitlines()
        print("\n".join(lines[-15:]), file=sys.stderr)
        return {"failed": lines[-1] if lines else "died"}
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def record(asked: Any) -> dict[str, Any]:
    import whet

    whet.install()
    name, _, at = asked.programs[0].partition(":")
    with device(asked) as torch:
        step = made_step(torch, asked, name, SIZES[name][int(at)])
        first = timed(asked, torch, step)
        return {"first_s": first, "steady_s": timed(asked, torch, step)}


def pack(asked: Any) -> dict[str, Any]:
    from whet.store import MemoryStore
    from whet.store.bundles.writing import write_bundle
    from whet.targets.files import RecordedFiles
    from whet.targets.triton.jit.packing import packing
    from whet.targets.triton.jit.records import Records

    start = time.perf_counter()
    found = packing(Records.beside(None), RecordedFiles())
    path = os.environ["SERVING_BUNDLE"]
    write_bundle(path, MemoryStore(), binaries=found.binaries, jit=found.lines)
    return {
        "specializations": len(found.lines),
        "kernels": len({json.loads(line)["kernel"] for line in found.lines}),
        "libraries": found.binaries.libraries,
        "bytes": os.path.getsize(path),
        "seconds": time.perf_counter() - start,
        "notes": found.notes,
    }


def replay(asked: Any) -> dict[str, Any]:
    import whet

    started: list[str] = []
    sys.addaudithook(lambda event, args: note_process(started, event, args))
    whet.install()
    with device(asked) as torch:
        from triton import knobs

        compiled: list[tuple[str, bool]] = []
        knobs.compilation.listener = lambda *, src, cache_hit, **_: compiled.append(
            (src.name, cache_hit)
        )
        steps = {
            f"{name}:{at}": made_step(torch, asked, name, size)
            for name in asked.programs
            for at, size in enumerate(SIZES[name])
        }
        loaded = whet.preload(os.environ["SERVING_BUNDLE"])
        seal = whet.sealed()
        torch_alone(torch, asked)
        calls = watch_calls(asked, torch)
        found: dict[str, dict[str, Any]] = {}
        for name, step in steps.items():
            try:
                first = timed(asked, torch, step)
                later = [timed(asked, torch, step) for _ in range(STEPS - 1)]
            except Exception as error:  # the other programs are not to be lost with this one
                found[name] = {"failed": f"{type(error).__name__}: {error}"}
                continue
            found[name] = {"first_s": first, "steady_s": statistics.median(later)}
    return {
        "preload_s": loaded.seconds,
        "ready": loaded.ready,
        "waiting": loaded.waiting,
        "uncovered": sorted({f"{one.kernel}: {one.why}" for one in loaded.uncovered}),
        "compiles": [name for name, hit in compiled if not hit],
        "compilers": [one for one in started if Path(one).name in COMPILERS],
        "unforeseen": seal.unforeseen,
        "steps": found,
        "calls": sorted(first_calls(calls), key=lambda one: -one["over_ms"]),
    }


def note_process(started: list[str], event: str, args: Any) -> None:
    if event == "subprocess.Popen":
        started.append(os.fspath(args[0] or args[1][0]))
    elif event in ("os.posix_spawn", "os.exec"):
        started.append(os.fspath(args[0]))


def device(asked: Any) -> Any:
    """A context in which Triton has a device; torch itself."""
    import torch

    if not asked.fake:
        torch.zeros(1, device="cuda")
        return nullcontext(torch)
    return faked(torch)


@contextmanager
def faked(torch: Any) -> Iterator[Any]:
    from whet.targets.triton.offline.precompile import torch_answers
    from whet.targets.triton.packed.architectures import architecture
    from whet.testing.fake_triton import fake_driver

    torch.cuda.device = lambda index: nullcontext()
    with fake_driver(), torch_answers(architecture("h200")):
        torch.cuda.get_device_properties(0).multi_processor_count = 132
        yield torch


def idle(asked: Any, torch: Any) -> None:
    if not asked.fake:
        torch.cuda.synchronize()


def timed(asked: Any, torch: Any, step: Callable[[], Any]) -> float:
    idle(asked, torch)
    start = time.perf_counter()
    step()
    idle(asked, torch)
    return time.perf_counter() - start


def torch_alone(torch: Any, asked: Any) -> None:
    """What torch loads when it is first used is not Triton's affair."""
    where = "cpu" if asked.fake else "cuda"
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.randn(256, 256, device=where, dtype=dtype, requires_grad=True)
        for _ in range(2):
            y = (x @ x).sum(0).cumsum(0) + x.exp().sigmoid()
            y.float().square().mean().backward()
            torch.empty_like(x).zero_().copy_(x.detach().to(torch.float32))
    idle(asked, torch)


def watch_calls(asked: Any, torch: Any) -> dict[int, list[Any]]:
    """From now on each launch of a `JITFunction` is timed, by the binary that it launched."""
    from triton.runtime.jit import JITFunction

    calls: dict[int, list[Any]] = {}
    run: Any = JITFunction.run

    def watched(self: Any, *args: Any, **keywords: Any) -> Any:
        if keywords.get("warmup"):
            return run(self, *args, **keywords)
        idle(asked, torch)
        start = time.perf_counter()
        kernel = run(self, *args, **keywords)
        idle(asked, torch)
        took = time.perf_counter() - start
        calls.setdefault(id(kernel), [self.fn.__name__, kernel]).append(took)
        return kernel

    JITFunction.run = watched
    return calls


def first_calls(calls: dict[int, list[Any]]) -> list[dict[str, Any]]:
    found = []
    for name, _, first, *later in calls.values():
        steady = statistics.median(later) if later else first
        ms = {"first_ms": first * 1e3, "steady_ms": steady * 1e3}
        found.append({"kernel": name, **ms, "over_ms": (first - steady) * 1e3})
    return found


def made_step(torch: Any, asked: Any, name: str, size: tuple[int, ...]) -> Callable[[], Any]:
    torch.manual_seed(0)
    where = "cpu" if asked.fake else "cuda"

    def normal(*shape: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.randn(*shape, device=where, dtype=dtype)

    tensors, forward = {"gla": gla, "kda": kda, "mamba2": mamba2}[name](torch, normal, size)
    smallest_first()
    for tensor in tensors.values():
        tensor.detach_().requires_grad_(True)

    def step() -> Any:
        for tensor in tensors.values():
            tensor.grad = None
        out = forward(tensors)
        out = out[0] if isinstance(out, tuple) else out
        out.float().square().mean().backward()
        return out

    return step


def smallest_first() -> None:
    """The same order in every process, so that all launch the same configs."""
    from triton.runtime.autotuner import Autotuner

    def size(config: Any) -> int:
        blocks = [n for n in config.kwargs.values() if isinstance(n, int) and n > 0]
        return math.prod([config.num_stages, *blocks])

    for one in [one for one in gc.get_objects() if issubclass(type(one), Autotuner)]:
        one.configs = sorted(one.configs, key=size)


def gla(torch: Any, normal: Any, size: tuple[int, ...]) -> tuple[dict[str, Any], Any]:
    from fla.ops.gla import chunk_gla

    made = {name: normal(*size) for name in ("q", "k", "v")}
    made["g"] = torch.nn.functional.logsigmoid(normal(*size))
    return made, lambda t: chunk_gla(t["q"], t["k"], t["v"], t["g"])[0]


def kda(torch: Any, normal: Any, size: tuple[int, ...]) -> tuple[dict[str, Any], Any]:
    from fla.ops.kda import chunk_kda

    made = {name: normal(*size) for name in ("q", "v")}
    made["k"] = torch.nn.functional.normalize(normal(*size).float(), dim=-1).bfloat16()
    made["g"] = torch.nn.functional.logsigmoid(normal(*size, dtype=torch.float32))
    made["beta"] = normal(*size[:3]).sigmoid()
    return made, lambda t: chunk_kda(t["q"], t["k"], t["v"], t["g"], t["beta"])[0]


def mamba2(torch: Any, normal: Any, size: tuple[int, ...]) -> tuple[dict[str, Any], Any]:
    from mamba_ssm.ops.triton import ssd_combined

    batch, length, heads, width, state, chunk = size
    scan = ssd_combined.mamba_chunk_scan_combined
    single = torch.float32
    made = {
        "x": normal(batch, length, heads, width),
        "dt": torch.nn.functional.softplus(normal(batch, length, heads, dtype=single) - 4),
        "A": -torch.exp(normal(heads, dtype=single)),
        "B": normal(batch, length, 1, state),
        "C": normal(batch, length, 1, state),
        "D": normal(heads, dtype=single),
    }
    return made, lambda t: scan(t["x"], t["dt"], t["A"], t["B"], t["C"], chunk, D=t["D"])


def table(found: dict[str, Any]) -> str:
    packed, replayed = found["pack"], found["replay"]
    lines = [f"{'program':10} {'first step without':>20} {'with':>10} {'steady':>10}"]
    for name, one in found["without"].items():
        with_ = replayed.get("steps", {}).get(name, {})
        row = [one.get("first_s"), with_.get("first_s"), with_.get("steady_s")]
        cells = ["failed" if s is None else f"{s * 1e3:.1f} ms" for s in row]
        lines.append(f"{name:10} {cells[0]:>20} {cells[1]:>10} {cells[2]:>10}")
    if "failed" in packed or "failed" in replayed:
        return "\n".join([*lines, f"pack: {packed}", f"replay: {replayed.get('failed')}"])
    worst = replayed["calls"][:5]
    over = sum(one["over_ms"] > 1.0 for one in replayed["calls"])
    lines += [
        f"packed: {packed['specializations']} specializations of {packed['kernels']} kernels, "
        f"{packed['libraries']} libraries, {packed['bytes'] / 2**20:.1f} MiB, "
        f"{packed['seconds']:.1f} s",
        f"preload: {replayed['ready']} ready in {replayed['preload_s']:.2f} s, "
        f"{len(replayed['waiting'])} waiting, {len(replayed['uncovered'])} not covered",
        f"compiles: {len(replayed['compiles'])}, C compiler starts: {len(replayed['compilers'])}, "
        f"reported by the seal: {len(replayed['unforeseen'])}",
        f"first calls more than 1 ms above steady: {over} of {len(replayed['calls'])}; worst: "
        + ", ".join(f"{one['kernel']} +{one['over_ms']:.2f} ms" for one in worst),
    ]
    lines += [
        f"{name} failed: {one['failed']}"
        for name, one in replayed["steps"].items()
        if "failed" in one
    ]
    lines += [f"  not covered: {one}" for one in replayed["uncovered"][:5]]
    lines += [f"  seal: {one}" for one in replayed["unforeseen"][:5]]
    lines += [f"  note: {one}" for one in packed["notes"][:5]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
