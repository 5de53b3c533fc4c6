"""What `torch.compile` takes to choose its kernels: alone, and with whet.

    python benchmarks/compile.py [--model mlp|vit|encoder] [--depth 2] [--calls 30] [--json]

Each line is a process of its own with Inductor's and Triton's caches empty, in this order: mode
`default`; `max-autotune` as installed; the same with whet and an empty store; again with that
store; and a model of twice the depth with that store. `vit` needs vit-pytorch and `encoder`
x-transformers (from PyPI, as they are, with random weights). On a CPU models are frozen, without
which nothing is tuned there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# What is said before anything of torch's is imported, so that a process can choose its caches.
LINES = ("default", "stock", "whet", "warm", "deeper")


def made(name: str, depth: int) -> tuple[Any, Any]:
    import torch

    torch.manual_seed(0)
    if name == "mlp":
        one = [torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)]
        layers = [*one, *[layer for _ in range(depth - 1) for layer in _like(one)]]
        return torch.nn.Sequential(*layers), torch.randn(64, 512)
    if name == "vit":
        vit = _file_of("vit_pytorch", "vit.py")
        sizes = {"image_size": 224, "patch_size": 16, "num_classes": 100, "dim": 384, "heads": 6}
        return vit.ViT(depth=depth, mlp_dim=1536, **sizes), torch.randn(1, 3, 224, 224)
    there = importlib.import_module("x_transformers")
    layers = there.Encoder(dim=384, depth=depth, heads=6)
    model = there.TransformerWrapper(num_tokens=5000, max_seq_len=256, attn_layers=layers)
    return model, torch.randint(0, 5000, (1, 256))


def _file_of(package: str, file: str) -> Any:
    """One module alone: the package asks for torchvision, which that module does not need."""
    folder = next(Path(one) / package for one in sys.path if (Path(one) / package / file).exists())
    spec = importlib.util.spec_from_file_location(f"{package}_{file[:-3]}", folder / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _like(layers: list[Any]) -> list[Any]:
    from copy import deepcopy

    return [deepcopy(layer) for layer in layers]


def compiled(line: str, name: str, depth: int, calls: int) -> dict[str, Any]:
    """In the process that a line is."""
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import config

    import whet

    cuda = torch.cuda.is_available()
    config.freezing = not cuda
    model, inputs = made(name, 2 * depth if line == "deeper" else depth)
    model = model.eval()
    if cuda:
        model, inputs = model.cuda(), inputs.cuda()
    tuning: list[float] = []
    if line not in ("default", "stock"):
        whet.install(inductor=True)
    _timed(tuning)
    with torch.no_grad():
        expected = model(inputs)
        start = time.perf_counter()
        fast = torch.compile(model, mode="default" if line == "default" else _mode())
        got = fast(inputs)
        first = time.perf_counter() - start
        steps = []
        for _ in range(calls):
            start = time.perf_counter()
            fast(inputs)
            if cuda:
                torch.cuda.synchronize()
            steps.append(time.perf_counter() - start)
    return {
        "line": line,
        "first_s": first,
        "tuning_s": sum(tuning),
        "measured": counters["inductor"]["select_algorithm_autotune"],
        "step_ms": 1e3 * statistics.median(steps),
        "off": float((got - expected).abs().max() / expected.abs().max()),
    }


def _mode() -> str:
    return "max-autotune-no-cudagraphs"


def _timed(into: list[float]) -> None:
    """Around whatever answers, ours or torch's."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache as Cache

    asked = Cache.lookup

    def lookup(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return asked(self, *args, **kwargs)
        finally:
            into.append(time.perf_counter() - start)

    Cache.lookup = lookup


def line_of(line: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    environment = {
        **os.environ,
        "WHET_STORE": str(folder / "store.db"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / line / "inductor"),
        "TRITON_CACHE_DIR": str(folder / line / "triton"),
    }
    command = [sys.executable, __file__, "--line", line, "--model", arguments.model]
    command += ["--depth", str(arguments.depth), "--calls", str(arguments.calls)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{line}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=("mlp", "vit", "encoder"), default="mlp")
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--line", choices=LINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.line:
        found = compiled(arguments.line, arguments.model, arguments.depth, arguments.calls)
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = [line_of(line, arguments, Path(folder)) for line in LINES]
    if arguments.json:
        print(json.dumps({"model": arguments.model, "machine": platform.machine(), "rows": rows}))
        return
    print(f"{arguments.model}, depth {arguments.depth} ({2 * arguments.depth} in the last line)")
    print(f"{'':8} {'first call':>11} {'tuning':>9} {'measured':>9} {'step':>10} {'off by':>8}")
    for row in rows:
        print(
            f"{row['line']:8} {row['first_s']:9.1f} s {row['tuning_s']:7.2f} s "
            f"{row['measured']:9} {row['step_ms']:7.2f} ms {row['off']:8.1e}"
        )


if __name__ == "__main__":
    main()
