"""`whet precompile`: what each config would use of GPUs that are not here."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, own_modules, refused
from whet.testing.fake_triton import fake_driver

pytest.importorskip("triton")

# The second config wants more shared memory than a block of a gfx942 has, the third than any has.
KERNEL = """
import triton
import triton.language as tl
import whet
from whet.testing.fake_triton import FakeTensor, told

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps, num_stages=1)
    for block, warps in ((32, 1), (256, 8), (512, 8))
]

def inputs(n, dtype="float16"):
    print("making inputs")
    return (1,), (FakeTensor([0.0], dtype), FakeTensor([0.0], dtype), n)

@whet.autotune(CONFIGS, key=["n"], inputs=inputs)
@triton.jit
def square(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * n + i[None, :]
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.dot(x, x).to(tl.float16))

square.whet_timer = told(lambda config: 1000.0 + config.num_warps)

@triton.jit
def bare(x_ptr, n, BLOCK: tl.constexpr):
    pass

unmade = whet.autotune(CONFIGS, key=["n"])(bare)
"""

HEURISTICS = """
import triton, triton.language as tl, whet
from whet.testing.fake_triton import FakeTensor

def inputs(n):
    return (1,), (FakeTensor([0.0]), n)

@triton.jit
def fill(x_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    tl.static_assert(EVEN)
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, i)

even = triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
tuned = whet.autotune([triton.Config({"BLOCK": 32})], key=["n"], inputs=inputs)
above, below = even(tuned(fill)), tuned(even(fill))
"""

BROKEN = """
import triton, triton.language as tl, whet
from whet.testing.fake_triton import FakeTensor

@triton.jit
def wider(x, BLOCK: tl.constexpr):
    return x + tl.arange(0, 2 * BLOCK)

@whet.autotune(
    [triton.Config({"BLOCK": block}) for block in (32, 64, 128)],
    key=["n"],
    inputs=lambda n: ((1,), (FakeTensor([0.0]), n)),
)
@triton.jit
def widen(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, wider(i, BLOCK))
"""

TORCH = """
import torch, triton, triton.language as tl, whet

def inputs(n):
    x = torch.randn(n, n, device="cuda").cuda().to("cuda:0", torch.float16)
    return (1,), (x, torch.empty_like(x, device=torch.device("cuda")), n)

@whet.autotune([triton.Config({"BLOCK": 32})], key=["n"], inputs=inputs)
@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i))
"""


@pytest.fixture(autouse=True)
def _place(binaries: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(binaries))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("WHET_STORE", "store.db")
    Path("kernel.py").write_text(KERNEL)
    with own_modules("kernel"):
        yield


def builds(whet: Whet, *arguments: str) -> list[dict[str, Any]]:
    ran = whet("precompile", "kernel.py:square", "--json", *arguments)
    assert ran.code == 0, ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)["builds"]
    return found


@pytest.mark.whole
def test_every_config_is_shown_with_what_it_uses_of_every_gpu(whet: Whet) -> None:
    before = set(Path().iterdir())
    ran = whet("precompile", "kernel.py:square", "--arch", "sm_90,gfx942", "--keys", "n=512")
    assert ran.code == 0
    assert ran.widest <= 80
    lines = ran.out.splitlines()
    assert lines[0].startswith("for n=512")
    start = [" ".join(line.split()) for line in lines].index(
        "arch config shared regs spilled occ. built"
    )
    assert [line.split()[0] for line in lines[start + 1 : start + 4]] == [
        "sm_90",
        "sm_90",
        "gfx942",
    ]
    assert not any("…" in line for line in lines)
    assert "making inputs" not in ran.out
    for part in (
        "sm_90 [BLOCK=512 num_warps=8",
        "limit 227 KiB",
        "gfx942 2 configs rejected",
        "first [BLOCK=256 num_warps=8",
        "to 512 KiB",
        "limit 64.0 KiB",
        "3 of 6 compiled",
        "--out DIR",
    ):
        assert part in ran.said
    assert {path.name for path in set(Path().iterdir()) - before} <= {"__pycache__"}


@pytest.mark.medium
def test_what_fails_alike_is_said_once_with_triton_s_words_and_the_line_of_the_kernel(
    whet: Whet,
) -> None:
    Path("broken.py").write_text(BROKEN)
    ran = whet("precompile", "broken.py:widen", "--arch", "sm_90", "--keys", "n=512")
    text = " ".join(ran.out.split())
    assert "sm_90 3 configs failed" in text
    assert "first [BLOCK=32" in text
    assert "incompatible dimensions at index 0: 32 and 64 (at 2:" in text
    assert "return x + tl.arange(0, 2 * BLOCK))" in text
    assert text.count("failed") == 1


@pytest.mark.medium
def test_json_has_resources_and_refusals(whet: Whet) -> None:
    first, _, last = builds(whet, "--arch=sm_90", "--keys=n=512")
    assert first["status"] == "ok"
    assert first["resources"].keys() == {
        "shared_bytes",
        "num_warps",
        "registers",
        "spills",
        "occupancy",
    }
    assert first["config"]["BLOCK"] == 32
    assert last["status"] == "resources"
    assert "shared memory" in last["error"]
    assert last["resources"] is None


@pytest.mark.slow
def test_keys_that_need_the_same_binary_share_a_line(whet: Whet) -> None:
    Path("keys.json").write_text('[{"n": 1024}, {"n": 511}]')
    found = builds(whet, "--arch=sm_90", "--keys=n=512", "--keys=keys.json")
    assert [build["keys"] for build in found[::3]] == [[{"n": 512}, {"n": 1024}], [{"n": 511}]]


@pytest.mark.slow
def test_a_second_time_nothing_is_compiled(whet: Whet) -> None:
    builds(whet, "--arch=sm_90", "--keys=n=512", "--out=packed")
    kept = sorted(Path("packed").iterdir())
    again = builds(whet, "--arch=sm_90", "--keys=n=512", "--out=packed")
    assert len(kept) == 2
    assert sorted(Path("packed").iterdir()) == kept
    assert [build["was_there"] for build in again] == [True, True, False]


@pytest.mark.slow
def test_the_setting_names_the_folder_too(whet: Whet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_BINARIES", "packed")
    ran = whet("precompile", "kernel.py:square", "--arch", "sm_90", "--keys", "n=512")
    assert "WHET_BINARIES=" in ran.out
    assert len(list(Path("packed").iterdir())) == 2


@pytest.mark.medium
def test_of_an_untuned_kernel_the_pick_is_the_first_config(whet: Whet) -> None:
    [only] = builds(whet, "--arch=sm_90", "--keys=n=512", "--configs=pick")
    assert only["config"]["BLOCK"] == 32
    assert only["why"].startswith("first: ")


@pytest.mark.medium
def test_of_a_tuned_kernel_the_pick_and_the_measured_are_those_in_the_store(whet: Whet) -> None:
    Path("kernel.py").write_text(KERNEL.replace("1000.0 + ", "1000.0 - "))
    with fake_driver():
        assert whet("tune", "kernel.py:square", "--key", "n=512", "--quiet").code == 0
    [pick] = builds(whet, "--arch=sm_90", "--keys=n=512", "--configs=pick")
    stored = builds(whet, "--arch=sm_90", "--keys=n=512", "--configs=stored")
    assert pick["config"]["BLOCK"] == 256
    assert pick["why"].startswith("exact: ")
    assert {build["config"]["BLOCK"] for build in stored} == {32, 256}
    assert len(stored) == 2


ON_A_GPU = """
from dataclasses import replace
from whet.testing.fake_triton import ToldTimer

class Timer(ToldTimer):
    name, l2 = "cuda+fresh", "warm"

    def measure(self, run, samples, warm):
        return replace(super().measure(run, samples, warm), l2=self.l2)

square.whet_timer = lambda: Timer(lambda config: 1000.0 - config.num_warps)
"""


@pytest.mark.medium
def test_a_pick_is_found_where_there_is_nothing_to_time_with(whet: Whet) -> None:
    """It was tuned with a GPU's timer, and no such timer can be made here."""
    plain = "".join(line for line in KERNEL.splitlines(True) if "whet_timer" not in line)
    Path("kernel.py").write_text(plain + ON_A_GPU)
    with fake_driver():
        assert whet("tune", "kernel.py:square", "--key", "n=512", "--quiet").code == 0
    Path("kernel.py").write_text(plain)
    [pick] = builds(whet, "--arch=sm_90", "--keys=n=512", "--configs=pick")
    assert (pick["config"]["BLOCK"], pick["why"][:6]) == (256, "exact:")


def test_stored_configs_of_a_kernel_that_was_never_measured_are_refused(whet: Whet) -> None:
    assert "n=512 on sm_90" in refused(
        whet("precompile", "kernel.py:square", "--arch=sm_90", "--keys=n=512", "--configs=stored")
    )


@pytest.mark.medium
def test_nothing_compiled_at_all_is_a_failure(whet: Whet) -> None:
    Path("kernel.py").write_text(KERNEL.replace("((32, 1), (256, 8), (512, 8))", "((512, 8),)"))
    ran = whet("precompile", "kernel.py:square", "--arch", "sm_90", "--keys", "n=512")
    assert ran.code == 1
    assert "no config of 'square'" in ran.err


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kernel.py:square", "--keys=n=1"), "--arch is required"),
        (("kernel.py:square", "--arch=h10", "--keys=n=1"), "did you mean h100 (sm_90)?"),
        (("kernel.py:square", "--arch=sm_90"), "a key is required"),
        (("kernel.py:square", "--arch=sm_90", "--keys=m=1"), "takes no 'm'"),
        (
            ("kernel.py:unmade", "--arch=sm_90", "--keys=n=1"),
            "does not say how to create its arguments",
        ),
        (("kernel.py:square", "--arch=sm_90", "--keys=n=1", "--configs=all"), "--configs all"),
        (
            ("kernel.py:square", "--arch=sm_90", "--keys=none.json"),
            "cannot read the keys in none.json",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(whet: Whet, arguments: tuple[str, ...], said: str) -> None:
    ran = whet("precompile", *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("whet: ") == 1


@pytest.mark.medium
def test_what_heuristics_around_the_kernel_add_is_compiled_in(whet: Whet) -> None:
    """Whether they stand above the autotuner or below it."""
    Path("kernel.py").write_text(HEURISTICS)
    for name in ("above", "below"):
        ran = whet("precompile", f"kernel.py:{name}", "--arch=sm_90", "--keys=n=64", "--json")
        assert ran.code == 0, ran.err
        [only] = json.loads(ran.out)["builds"]
        assert only["keys"] == [{"n": 64}]


@pytest.mark.medium
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not here")
def test_torchs_tensors_on_a_gpu_need_neither_gpu_nor_memory(whet: Whet) -> None:
    Path("kernel.py").write_text(TORCH)
    ran = whet("precompile", "kernel.py:copy", "--arch=sm_90", "--keys=n=400000", "--json")
    assert ran.code == 0, ran.err
    [only] = json.loads(ran.out)["builds"]
    assert only["status"] == "ok"
