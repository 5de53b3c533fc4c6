"""Calls wait for tunings up to a limit; after it a new key takes what is best at the nearest one,
until a tuning would have paid."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.core.errors import UsageError
from whet.engine.fallback.calls import CallDecisions
from whet.engine.fallback.inheritance import stand_in
from whet.engine.tuning import tune
from whet.store import MemoryStore


def slow(n: int) -> None:
    time.sleep(2e-3)


def fast(n: int) -> None:
    time.sleep(1e-4)


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    return whet.choice(
        {"slow": slow, "fast": fast},
        key=["n"],
        name="product",
        buckets={"n": "pow2"},
        check=False,
        wait_limit="1ms",
    )


def runs(folder: Path) -> list[str]:
    with whet.open_store(folder / "store.db", read_only=True) as store:
        return sorted(str(dict(known.workload.key)["n"]) for known in store.workloads())


def test_the_first_key_is_tuned_and_the_next_takes_its_best(product: Any, tmp_path: Path) -> None:
    product(16)
    product(32)
    assert list(product.picks.values()) == ["fast"]
    (said,) = product.stand_ins.values()
    assert said.startswith("fast: the best at n=16, 1.0 doublings away")
    assert runs(tmp_path) == ["16"]


def test_a_tuning_that_pays_is_done(product: Any, tmp_path: Path) -> None:
    product(16)
    product(32)
    (counted,) = [
        one
        for table in product._tables.values()
        for plan in table.plans.values()
        for one in plan.table.values()
        if hasattr(one, "_left")
    ]
    assert counted._left > 0
    counted._left = 2
    product(32)
    assert product.stand_ins
    product(32)
    assert runs(tmp_path) == ["16"]
    product(32)
    assert not product.stand_ins
    assert runs(tmp_path) == ["16", "32"]
    assert list(product.picks.values()) == ["fast", "fast"]


def test_within_the_limit_every_key_is_tuned(
    product: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product.wait_limit_s = 100.0
    product(16)
    product(32)
    assert not product.stand_ins
    assert runs(tmp_path) == ["16", "32"]


def test_the_setting_is_for_those_that_have_none(
    product: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product.wait_limit_s = None
    product(16)
    product(32)
    assert not product.stand_ins
    monkeypatch.setenv("WHET_WAIT_LIMIT", "1ms")
    product(64)
    assert len(product.stand_ins) == 1


def test_with_ranks_every_key_is_tuned(
    product: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product(16)
    monkeypatch.setattr("whet.engine.ranks.group_board", object)
    assert product._decisions._stands_in(_Call()) is None


class _Call:
    key = "n=32"

    def wait_limit_s(self) -> float:
        return 0.0

    def stand_in(self) -> tuple[str, int]:
        return "fast", 3


def test_a_call_stands_in_until_it_is_due_and_not_inside_a_tuning() -> None:
    decisions: CallDecisions[str] = CallDecisions()
    call: Any = _Call()
    assert decisions._stands_in(call) == ("fast", 3)
    from whet.engine.fallback.calls import all_tuned

    with all_tuned():
        assert decisions._stands_in(call) is None
    decisions.pays(call.key)
    assert decisions._stands_in(call) is None
    decisions.clear()
    assert decisions._stands_in(call) == ("fast", 3)


def test_forgetting_starts_anew(product: Any) -> None:
    product(16)
    product(32)
    product.forget()
    assert not product.stand_ins


def test_a_mode_that_does_not_tune_has_no_stand_ins(product: Any) -> None:
    product(16)
    with whet.mode("cached"):
        product(32)
    assert not product.stand_ins
    product(32)
    assert len(product.stand_ins) == 1


@pytest.mark.parametrize(("size", "calls"), [(32, 1), (64, 4), (256, 16)])
def test_the_farther_the_nearer_a_tuning(size: int, calls: int) -> None:
    """What is lost grows with the square of the distance."""

    def target(n: int) -> Any:
        def sized(x: int = 1) -> None:
            time.sleep(1e-4 * x)

        return whet.function(sized, {"x": [1, 2]}, key={"n": n}, isolate=False)

    with MemoryStore() as store:
        tune(target(16), store=store)
        near, far = stand_in(target(32), store), stand_in(target(size), store)
    assert near is not None
    assert far is not None
    assert far.config["x"] == 1
    assert near.calls / far.calls == pytest.approx(min(calls, 1 / 0.09), rel=0.1)


def test_nothing_stands_in_where_nothing_is_known() -> None:
    def alone(x: int = 1) -> None: ...

    with MemoryStore() as store:
        assert stand_in(whet.function(alone, {"x": [1, 2]}, key={"n": 1}), store) is None


@pytest.mark.parametrize("given", ["soon", "10trials", True, -1])
def test_a_limit_is_a_time(given: Any) -> None:
    with pytest.raises(UsageError):
        whet.choice({"slow": slow, "fast": fast}, wait_limit=given)
