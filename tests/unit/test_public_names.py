"""What `from whet import …` gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import whet

CLASS_API = """\
from whet import (
    FP8_GEMM_CONFIGS,
    GATED_MLP_CONFIGS,
    RMSNORM_ROPE_CONFIGS,
    ConfigCache,
    KernelMetrics,
    TritonAutoTuner,
    TuningFailedError,
    TuningResult,
    compute_elementwise_metrics,
    compute_gemm_metrics,
    filter_valid_configs,
    generate_configs,
    get_default_config,
)
"""

DOCUMENTED = """\
import torch
from whet import TritonAutoTuner

def dummy_kernel(x, BLOCK_SIZE=64, num_warps=4):
    return x * 2

tuner = TritonAutoTuner(
    kernel_fn=dummy_kernel,
    config_space={
        "BLOCK_SIZE": [64, 128],
        "num_warps": [4, 8],
    },
    warmup_runs=2,
    benchmark_runs=5,
)

x = torch.randn(1024)
result = tuner.tune(x, problem_size=(1024,), kernel_type="dummy")
print(len(result.all_results), sorted(result.best_config))
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def public(module: ModuleType) -> list[str]:
    return [str(name) for name in module.__dict__["__all__"]]


MODULES = ("autotuner", "errors", "lock", "results", "serving")
SINCE = ("Bench", "Timed")  # never were at the top
FORMER = [
    (module, name)
    for module in MODULES
    for name in public(getattr(whet, module))
    if name not in SINCE
]


def test_few_names_are_at_the_top() -> None:
    assert len(whet.__all__) == len(set(whet.__all__)) <= 30
    assert {*MODULES} < {*whet.__all__}
    assert len({name for _, name in FORMER}) == 38


@pytest.mark.parametrize(("module", "name"), FORMER)
def test_a_name_that_was_at_the_top_is_still_found_there(module: str, name: str) -> None:
    assert name not in whet.__all__
    assert getattr(whet, name) is getattr(getattr(whet, module), name)


@pytest.mark.medium
def test_the_class_api_is_imported_quietly_and_without_heavy_packages() -> None:
    heavy = "print([m for m in ('rich', 'sklearn', 'torch', 'triton') if m in sys.modules])"
    assert run(f"import sys\n{CLASS_API}\n{heavy}") == "[]\n"


NO_TRITON = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
import whet
"""


@pytest.mark.medium
def test_every_name_but_autotune_is_there_without_torch_and_triton() -> None:
    names = "print([getattr(whet, name) is None for name in whet.__all__ if name != 'autotune'])"
    assert "True" not in run(f"{NO_TRITON}{names}")


@pytest.mark.medium
def test_names_other_than_autotune_do_not_import_triton_where_it_is() -> None:
    names = "[getattr(whet, name) for name in whet.__all__ if name != 'autotune']"
    heavy = "[m for m in ('rich', 'sklearn', 'torch', 'triton') if m in sys.modules]"
    assert run(f"import sys, whet\n{names}\nprint({heavy})") == "[]\n"


@pytest.mark.medium
def test_a_choice_between_plain_functions_needs_neither_torch_nor_triton(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text(f"""{NO_TRITON}
import numpy

def slow(x):
    return sum(float(one) for one in x)

def quick(x):
    return float(x.sum())

if __name__ == "__main__":
    total = whet.choice({{"slow": slow, "quick": quick}}, key=lambda x: {{"n": len(x)}})
    print(total(numpy.ones(20_000)), total(numpy.ones(20_000)))
    print(whet.choose(total.target(numpy.ones(20_000))).config)
""")
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "WHET_STORE": str(tmp_path / "store.db")},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("20000.0 20000.0\n")
    assert "quick" in done.stdout


def test_importing_whet_imports_none_of_its_rooms() -> None:
    rooms = "print([m for m in sys.modules if m.startswith('whet.') and m != 'whet._version'])"
    assert run(f"import sys, whet\n{rooms}") == "[]\n"


@pytest.mark.slow
def test_the_documented_example_of_the_class_api_runs() -> None:
    pytest.importorskip("torch")
    assert run(DOCUMENTED) == "4 ['BLOCK_SIZE', 'num_warps']\n"
