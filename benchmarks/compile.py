"""What `torch.compile` takes to choose its kernels: alone, and with whet.

    python benchmarks/compile.py [--model mlp|vit|encoder|gpt] [--train] [--depth 2] [--calls 30]
        [--lines default,stock,lean,whet,warm,deeper] [--store FILE] [--json]

Each line is a process of its own with Inductor's and Triton's caches empty, in this order: mode
`default`; `max-autotune` as installed; the same with one assembler and without what needs too much
shared memory, `lean`; with whet and an empty store; again with that store; and a model of twice the
depth with that store. `vit` needs vit-pytorch and `encoder` x-transformers (from PyPI, as they are,
with random weights), `gpt` nanoGPT's `model.py` in a folder `nanogpt` of the path: GPT-2 small with
so many layers, 8 x 1024 tokens. `products` is what choosing among kernels for products and
convolutions took, `kernels` the same for those that Inductor writes. On a CPU models are frozen,
without which nothing is tuned there.
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
from functools import partial
from pathlib import Path
from typing import Any

# What is said before anything of torch's is imported, so that a process can choose its caches.
LINES = ("default", "stock", "lean", "whet", "warm", "deeper")


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
    if name == "gpt":
        gpt = _file_of("nanogpt", "model.py")
        small = gpt.GPTConfig(n_layer=depth, vocab_size=50304, dropout=0.0, bias=False)
        return gpt.GPT(small), torch.randint(0, 50304, (8, 1024))
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


def compiled(line: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """In the process that a line is."""
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import config

    import whet

    cuda = torch.cuda.is_available()
    config.freezing = not cuda
    if line == "lean":
        config.max_autotune_prune_choices_based_on_shared_mem = True
    depth = (2 if line == "deeper" else 1) * arguments.depth
    model, inputs = made(arguments.model, depth)
    if cuda:
        model, inputs = model.cuda(), inputs.cuda()
    if line in ("whet", "warm", "deeper"):
        whet.install(inductor=True)
    products, kernels = _timed()
    step = partial(_trained if arguments.train else _looked_at, model, inputs)
    expected = step(model)
    start = time.perf_counter()
    fast = torch.compile(model, mode="default" if line == "default" else _mode())
    got = step(fast)
    if cuda:
        torch.cuda.synchronize()
    first = time.perf_counter() - start
    steps = []
    for _ in range(arguments.calls):
        start = time.perf_counter()
        step(fast)
        if cuda:
            torch.cuda.synchronize()
        steps.append(time.perf_counter() - start)
    return {
        "line": line,
        "first_s": first,
        "products_s": sum(products),
        "kernels_s": sum(kernels),
        "measured": counters["inductor"]["select_algorithm_autotune"],
        "step_ms": 1e3 * statistics.median(steps),
        "off": float((got - expected).abs().max() / expected.abs().max()),
        "taken": [[one.kernel, one.how, one.keys, one.seconds] for one in _taken()],
    }


def _taken() -> list[Any]:
    import whet

    return [one for one in whet.installed() if one.kernel.startswith("inductor.")]


def _looked_at(model: Any, inputs: Any, run: Any) -> Any:
    import torch

    model.eval()
    with torch.no_grad():
        return run(inputs)


def _trained(model: Any, inputs: Any, run: Any) -> Any:
    """One step without an optimizer: the gradients of the first parameter."""
    import torch

    model.zero_grad(set_to_none=True)
    with torch.autocast(inputs.device.type, torch.bfloat16):
        got = run(inputs, inputs) if hasattr(model, "get_num_params") else run(inputs)
    loss = got[1] if isinstance(got, tuple) else got.float().square().mean()
    loss.backward()
    return next(iter(model.parameters())).grad.clone()


def _mode() -> str:
    return "max-autotune-no-cudagraphs"


def _timed() -> tuple[list[float], list[float]]:
    """Around whatever answers, ours or torch's."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.select_algorithm import AlgorithmSelectorCache as Cache

    products: list[float] = []
    kernels: list[float] = []
    for owner, name, into in (
        (Cache, "lookup", products),
        (CachingAutotuner, "autotune_to_one_config", kernels),
        (CachingAutotuner, "coordinate_descent_tuning", kernels),
    ):
        setattr(owner, name, _within(getattr(owner, name), into))
    return products, kernels


def _within(asked: Any, into: list[float]) -> Any:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return asked(*args, **kwargs)
        finally:
            into.append(time.perf_counter() - start)

    return timed


def line_of(line: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    environment = {
        **os.environ,
        "WHET_STORE": arguments.store or str(folder / "store.db"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / line / "inductor"),
        "TRITON_CACHE_DIR": str(folder / line / "triton"),
    }
    if line == "lean":
        environment["TRITON_PTXAS_PATH"] = _torchs_ptxas()
    command = [sys.executable, __file__, "--line", line, "--model", arguments.model]
    command += ["--depth", str(arguments.depth), "--calls", str(arguments.calls)]
    command += ["--train"] if arguments.train else []
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{line}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _torchs_ptxas() -> str:
    spec = importlib.util.find_spec("torch")
    return str(Path(str(spec and spec.origin)).parent / "bin" / "ptxas")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=("mlp", "vit", "encoder", "gpt"), default="mlp")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--lines", default=",".join(LINES))
    parser.add_argument("--store", help="kept; by default one for this run alone")
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--line", choices=LINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.line:
        print(json.dumps(compiled(arguments.line, arguments)))
        return
    what = f"{arguments.model}{', trained' if arguments.train else ''}, depth {arguments.depth}"
    print(f"{what} ({2 * arguments.depth} in a line 'deeper')", file=sys.stderr)
    head = f"{'':8} {'first call':>11} {'products':>9} {'kernels':>9} {'measured':>9} {'step':>10}"
    print(f"{head} {'off by':>8}", file=sys.stderr)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for line in arguments.lines.split(","):
            row = line_of(line, arguments, Path(folder))
            rows.append(row)
            print(
                f"{row['line']:8} {row['first_s']:9.1f} s {row['products_s']:7.2f} s "
                f"{row['kernels_s']:7.2f} s {row['measured']:9} {row['step_ms']:7.2f} ms "
                f"{row['off']:8.1e}",
                file=sys.stderr,
                flush=True,
            )
    if arguments.json:
        print(json.dumps({"model": arguments.model, "machine": platform.machine(), "rows": rows}))


if __name__ == "__main__":
    main()
