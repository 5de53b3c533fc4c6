"""`whet show KERNEL`: everything that is known of one kernel."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, own_modules, refused

pytest.importorskip("triton")
pytest.importorskip("torch")

import torch

import whet as package
from whet.targets.files import load_module
from whet.testing.fake_triton import fake_driver

KERNELS = """
import triton
import triton.language as tl
import whet
from whet.testing.fake_triton import told

@triton.jit(do_not_specialize=["t"])
def scale(x, y, factor, n, t, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor + t, mask=i < n)

tuned = whet.autotune([triton.Config({"BLOCK": size}) for size in (16, 32)], key=["n"])(scale)
tuned.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
"""


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, binaries: Path) -> Iterator[Any]:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(binaries))
    monkeypatch.setenv("WHET_POLICY", "none")
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("shown_kernels.py").write_text(KERNELS)
    with own_modules("shown_"), fake_driver() as fake:
        yield fake


def call(*sizes: int, shift: int = 0, mode: Any = "record") -> None:
    kernel = load_module(Path("shown_kernels.py").resolve()).tuned
    with package.mode(mode):
        for n in sizes:
            x = torch.zeros(n + shift, dtype=torch.bfloat16)[shift:]
            kernel[(1,)](x, torch.zeros(n), 2.0, n, 16, True)


def shown(whet: Whet, *words: str) -> dict[str, Any]:
    ran = whet("show", *words, "--json")
    assert ran.code == 0, ran
    return json.loads(ran.out)  # type: ignore[no-any-return]


@pytest.mark.medium
def test_a_kernel_that_was_only_met_has_a_passport(whet: Whet) -> None:
    call(64, 33)
    told = shown(whet, "scale")
    [kernel] = told["kernels"]
    assert (told["workload"], told["importance"]) == (None, [])
    assert kernel["kernel"] == "scale"
    assert kernel["modules"] == ["shown_kernels"]
    assert kernel["sources"][0]["places"] == [f"{Path('shown_kernels.py').resolve()}:tuned"]
    assert len(kernel["sources"][0]["fingerprint"]) > 8
    assert [one["state"] for one in kernel["keys"]] == ["missed", "missed"]
    assert all(one["recorded"] for one in kernel["keys"])
    assert kernel["cost"] == {"runs": 0, "seconds": 0}
    ran = whet("show", "scale")
    assert "2 missed" in ran.out
    assert re.search(r"^calls +2 recorded$", ran.out, re.MULTILINE)
    assert "never tuned" in ran.out


@pytest.mark.medium
def test_a_bucket_of_what_is_not_in_the_key_is_said_to_be_skipped(
    whet: Whet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    policy = tmp_path / "whet.toml"
    policy.write_text('[[kernel]]\nmatch = "shown_*:*"\nbuckets = { n = [64], T = "pow2" }\n')
    monkeypatch.setenv("WHET_POLICY", str(policy))
    call(64)
    [kernel] = shown(whet, "scale")["kernels"]
    assert [(one["setting"], one["value"]) for one in kernel["policy"]] == [
        ("buckets.n", "64"),
        ("buckets.T", "pow2, skipped: not in its key (n)"),
    ]


@pytest.mark.medium
def test_specializations_are_what_triton_compiles_for(whet: Whet) -> None:
    call(64, 128, 33)
    call(1, shift=3)
    [kernel] = shown(whet, "scale")["kernels"]
    found = {one["text"]: one["keys"] for one in kernel["specializations"]}
    assert found == {
        "x *bf16:16, y *fp32:16, factor fp32, n i32:16, t i32, WIDE=True": 2,
        "x *bf16:16, y *fp32:16, factor fp32, n i32, t i32, WIDE=True": 1,
        "x *bf16, y *fp32:16, factor fp32, n=1, t i32, WIDE=True": 1,
    }


@pytest.mark.slow
def test_picks_costs_and_keys_are_told_with_the_last_workload(
    whet: Whet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    policy = tmp_path / "whet.toml"
    policy.write_text('[[kernel]]\nmatch = "shown_kernels:sca*"\neffort = "quick"\nrun_limit = 3\n')
    monkeypatch.setenv("WHET_POLICY", str(policy))
    call(64, 33)
    assert whet("tune", "--missed", "-q").code == 0
    call(100)
    told = shown(whet, "scale")
    [kernel] = told["kernels"]
    assert sorted(one["state"] for one in kernel["keys"]) == ["missed", "tuned", "tuned"]
    [pick] = kernel["picks"]
    assert (pick["config"]["BLOCK"], pick["keys"]) == (32, 2)
    assert kernel["cost"]["runs"] == 2
    assert kernel["cost"]["seconds"] > 0
    assert kernel["policy"] == [
        {"setting": "effort", "value": "quick", "where": f"{policy}:3"},
        {"setting": "run_limit", "value": "3.0", "where": f"{policy}:4"},
    ]
    assert told["workload"]["kernel"] == "scale"

    ran = whet("show", "scale")
    assert max(map(len, ran.out.splitlines())) <= 80
    for part in ("fingerprint", "2 tuned, 1 missed", "whet.toml:3", "2 keys: BLOCK=32", "2 runs"):
        assert part in ran.out


@pytest.mark.medium
def test_a_kernel_goes_by_its_file_or_its_module_too(whet: Whet) -> None:
    call(64)
    for name in ("shown_kernels.py:tuned", "shown_kernels:scale"):
        assert [one["kernel"] for one in shown(whet, name)["kernels"]] == ["scale"]
    ran = whet("show", "other_module:scale")
    assert ran.code != 0
    assert "other_module:scale" in ran.err


@pytest.mark.medium
def test_a_name_that_nothing_goes_by_is_an_error_with_what_may_be_meant(whet: Whet) -> None:
    call(64, mode="tune")
    assert "mean 'scale'?" in refused(whet("show", "scalle"))


@pytest.mark.medium
def test_many_keys_are_cut_with_how_to_see_all(whet: Whet) -> None:
    call(*range(100, 120))
    out = whet("show", "scale").out
    assert "8 other keys: whet best KERNEL" in out
    assert "in all: x.dtype=torch.bfloat16, y.dtype=torch.float32" in out
    assert len(shown(whet, "scale")["kernels"][0]["keys"]) == 20


@pytest.mark.medium
def test_hostile_text_in_a_store_does_not_steer_the_terminal(whet: Whet) -> None:
    from dataclasses import replace

    call(64)
    with package.open_store() as store:
        [miss] = store.missed()
        store.miss(
            replace(
                miss,
                workload=replace(miss.workload, kernel="scale", key={"a\033[2J": "b\a"}),  # type: ignore[arg-type]
                module="m\033[31m",
            )
        )
    out = whet("show", "scale").out
    assert "\033" not in out
    assert "\a" not in out
