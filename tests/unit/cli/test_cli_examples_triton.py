"""The shipped Triton examples where there is no GPU: compiled for one, tuned on a fake one, and
run by Triton's interpreter against torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, own_modules
from fork_server import ForkServer

pytest.importorskip("torch")
pytest.importorskip("triton")

from whet.cli.arguments.locate import locate
from whet.cli.commands import demo
from whet.targets.triton.offline.kernel import Kernel
from whet.targets.triton.offline.precompile import without_memory
from whet.targets.triton.offline.tuning import tune_call
from whet.testing.fake_triton import fake_driver, told

EXAMPLES = Path(__file__).parents[3] / "examples"
MATMUL = f"{EXAMPLES / 'triton_matmul.py'}:matmul"
SOFTMAX = f"{EXAMPLES / 'triton_softmax.py'}:softmax"

both = pytest.mark.parametrize(
    ("kernel", "key"),
    [(MATMUL, {"M": 256, "N": 128, "K": 64}), (SOFTMAX, {"rows": 64, "columns": 3000})],
    ids=["matmul", "softmax"],
)

ON_THE_HOST = """
import importlib.util, json, sys
import torch
from torch.overrides import TorchFunctionMode

class OnTheHost(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)

file, name, key = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
spec = importlib.util.spec_from_file_location("example", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
kernel = getattr(module, name)
for config in (kernel.configs[0], kernel.configs[-1]):
    with OnTheHost():
        grid, args = module.inputs(**key)
    kernel.fn[grid](*args, **config.kwargs)
    named = dict(zip(kernel.arg_names, args))
    for output, expected in module.reference(named).items():
        torch.testing.assert_close(named[output], expected, atol=1e-2, rtol=1e-2)
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("WHET_STORE", "store.db")
    with own_modules("triton_matmul", "triton_softmax"):
        yield


def environment() -> dict[str, str]:
    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    return {**os.environ, "PYTHONPATH": path}


def command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**environment(), **environ},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@both
def test_its_kernel_computes_what_torch_does(kernel: str, key: dict[str, int]) -> None:
    file, _, name = kernel.rpartition(":")
    done = command("-c", ON_THE_HOST, file, name, json.dumps(key), TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@both
def test_its_first_config_is_precompiled(whet: Whet, kernel: str, key: dict[str, int]) -> None:
    typed = ",".join(f"{name}={value}" for name, value in key.items())
    ran = whet("precompile", kernel, "--arch", "h100,mi300x", "--key", typed, "--configs", "pick")
    assert ran.code == 0, ran.err
    assert "2 of 2 compiled" in ran.out


@pytest.mark.slow
@both
def test_it_is_tuned_with_the_arguments_its_inputs_make(kernel: str, key: dict[str, int]) -> None:
    found: Any = locate(kernel)
    assert isinstance(found, Kernel)
    tuner = found.tuner
    tuner.configs = tuner.configs[:2]
    tuner.whet_timer = told(lambda config: 1000.0 - list(config.kwargs.values())[1:2].count(128))
    tuner.whet_check = None  # tensors without memory have nothing to compare
    with fake_driver() as driver, without_memory():
        grid, args = tuner.whet_inputs(**key)
        result = tune_call(found, grid, args, {})
    assert len(result.trials) == 2
    assert driver.launches[-1][0] == found.name


@pytest.mark.slow
@pytest.mark.skipif(demo.gpu_ready(), reason="there is a GPU")
@pytest.mark.parametrize("kernel", [MATMUL, SOFTMAX], ids=["matmul", "softmax"])
def test_without_a_gpu_it_says_what_can_be_done(
    kernel: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    file, _, name = kernel.rpartition(":")
    done = fork_server.run(
        [sys.executable, "-m", "whet", "run", file], cwd=tmp_path, env=environment()
    )
    assert done.returncode == 1
    assert f"whet precompile examples/{Path(file).name}:{name} --arch h100 --key" in done.stderr
    assert "Traceback" not in done.stderr
