"""`check="bitwise"` and `check="deterministic"` of C kernels and Python callables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whet
from whet.core.errors import TuningFailedError, UsageError
from whet.engine.lockfile.entries import LockEntry, write_lock
from whet.measure.bench.bits import BITS
from whet.store import MemoryStore
from whet.testing.samples import a_timing, a_trial

SUM = """
void total(const float *x, float *out, int n) {
    float part[LANES] = {0};
    for (int i = 0; i < n; i++) part[i % LANES] += x[i];
    float s = 0;
    for (int l = 0; l < LANES; l++) s += part[l];
    out[0] = s + SPARE * 0.0f;
}
"""
VARYING = """
static int calls;
void total(const float *x, float *out, int n) {
    calls++;
    out[0] = MODE ? (float)calls : (float)n;
}
"""


def summing(**options: Any) -> Any:
    options = {"check": "bitwise", "space": {"LANES": [1, 4], "SPARE": [0, 1]}, **options}
    return whet.native(
        options.pop("source", SUM),
        options.pop("space"),
        function="total",
        args={"x": np.zeros(512, np.float32), "out": np.zeros(4, np.float32), "n": 512},
        outputs=["out"],
        options=("-O1", "-fno-tree-vectorize"),
        **options,
    )


def statuses(result: whet.Result, name: str) -> dict[Any, set[str]]:
    found: dict[Any, set[str]] = {}
    for trial in result.trials:
        found.setdefault(trial.config[name], set()).add(str(trial.status))
    return found


@pytest.mark.slow
def test_a_c_kernel_that_adds_in_another_order_is_refused() -> None:
    """The array holds zeros: only made inputs show the order."""
    result = whet.tune(summing(), store=":memory:")
    assert result.config["LANES"] == 1
    found = statuses(result, "LANES")
    assert found[4] == {"wrong_result"}
    assert found[1] <= {"ok", "outraced"}
    assert any("refused 2 configs" in note for note in result.notes)


@pytest.mark.slow
def test_a_c_kernel_that_differs_from_call_to_call_is_refused() -> None:
    asked: dict[str, Any] = {"source": VARYING, "check": "deterministic"}
    result = whet.tune(summing(space={"MODE": [1, 0]}, **asked), store=":memory:")
    assert result.config["MODE"] == 0
    assert statuses(result, "MODE")[1] == {"wrong_result"}
    with pytest.raises(TuningFailedError, match="different bits from launch to launch"):
        whet.tune(summing(space={"MODE": [1]}, **asked), store=":memory:")


def ordered(x: Any, reverse: bool) -> Any:
    total = np.float32(0)
    for value in x[::-1] if reverse else x:
        total += value
    return total


def test_a_callable_is_compared_by_what_it_returns() -> None:
    target = whet.function(
        ordered,
        {"reverse": [False, True]},
        args=(np.zeros(64, np.float32),),
        check="bitwise",
        isolate=False,
    )
    result = whet.tune(target, store=":memory:")
    assert result.config["reverse"] is False
    assert statuses(result, "reverse")[True] == {"wrong_result"}


def written(out: Any, block: int) -> None:
    out[0] = block // 4
    out[1] = out[1] + 1


def test_what_it_leaves_in_its_arguments_counts_and_they_stay_as_they_were() -> None:
    out = np.zeros(2)
    target = whet.function(
        written, {"block": [4, 5, 8]}, args=(out,), check="bitwise", isolate=False
    )
    loaded = target.load(next(iter(target.space)), None)
    assert loaded.check().ok
    assert out.tolist() == [0.0, 0.0]
    assert {one[1] for one in loaded.facts[BITS]} == {"return value", "0"}


def test_a_checked_result_is_not_the_answer_to_an_unchecked_tuning(tmp_path: Path) -> None:
    free, checked = (
        whet.function(written, {"block": [4, 5]}, args=(np.zeros(2),), check=check)
        for check in (None, "bitwise")
    )
    assert free.workload().id != checked.workload().id


def sized(n: int, **options: Any) -> Any:
    return whet.function(
        written, {"block": [4, 5, 8]}, args=(np.zeros(2),), key={"n": n}, check="bitwise", **options
    )


def test_a_key_where_bits_were_not_compared_uses_the_first_config(tmp_path: Path) -> None:
    """What was right at another key is inherited only where nobody asked for bits."""
    store, lock = MemoryStore(), tmp_path / "whet.lock"
    workload = sized(4).workload()
    store.put_workload(workload)
    store.append([a_trial(workload, {"block": 5}, timing=a_timing(1.0, timer="cpu"))])
    assert whet.choose(sized(4), store=store, mode="cached").config["block"] == 5
    found = whet.choose(sized(8), store=store, mode="cached")
    assert (found.config["block"], found.source) == (4, "first")
    write_lock(lock, [LockEntry.of(workload, whet.Config(block=5))])
    assert whet.choose(sized(4, lock=lock), mode="cached").config["block"] == 5
    found = whet.choose(sized(8, lock=lock), mode="cached")
    assert (found.config["block"], found.source) == (4, "first")
    assert "not compared" in found.reason


def test_what_compares_no_bits_is_refused() -> None:
    with pytest.raises(UsageError, match=r"tune 'written' with whet\.tune"):
        whet.refine(sized(4), store=MemoryStore())


def test_a_check_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match='give a function, "bitwise" or "deterministic"'):
        whet.function(written, {"block": [1]}, check="bits")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match='give "bitwise" or "deterministic"'):
        summing(check="agree")
