"""`whet verify` of what is stored for functions and C kernels.

Stored times are told: a nanosecond is less than anything takes, and an hour is more.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, refused
from whet.cli.arguments.locate import locate
from whet.store import open_store
from whet.testing.samples import a_trial

NANOSECOND, HOUR = 1.0, 3.6e12

KERNELS = """
import whet

def count(n):
    for _ in range(n):
        pass

def hurt(n):
    if n == 1:
        raise RuntimeError("it hurts")

counting = whet.function(count, {"n": [4000, 1]}, name="counting")
hurting = whet.function(hurt, {"n": [4000, 1]}, name="hurting")
unknown = whet.function(count, {"n": [1, 2]}, name="unknown")
"""
NATIVE = """
import numpy as np
import whet

SOURCE = "void twice(int n, float *x) { for (int i = 0; i < n; i += STEP) x[i] *= 2; }"
twice = whet.native(
    SOURCE,
    {"STEP": [1, 4]},
    function="twice",
    args={"n": 64, "x": np.zeros(64, np.float32)},
)
"""


@pytest.fixture(autouse=True)
def _kernels() -> None:
    Path("kernels.py").write_text(KERNELS)


def stored(name: str, median_ns: float, config: dict[str, Any] | None = None) -> None:
    target = locate(f"kernels.py:{name}")
    with open_store("s.db") as store:
        workload = target.workload()  # type: ignore[union-attr]
        store.put_workload(workload)
        store.append([a_trial(workload, config or {"n": 1}, median_ns)])


def verify(whet: Whet, *arguments: str) -> Any:
    return whet("verify", *arguments, "--store", "s.db")


@pytest.mark.medium
def test_a_pick_that_holds_is_ok(whet: Whet) -> None:
    stored("counting", HOUR)
    ran = verify(whet, "kernels.py:counting")

    assert ran.code == 0, ran.err
    head, row, *_, last = ran.out.splitlines()
    assert head.split() == ["verdict", "workload", "stored", "now", "now/stored", "first/now"]
    assert row.startswith("ok")
    assert last.startswith("1 pick: 1 ok (")
    assert "3 %" in last
    assert "95 %" in last
    assert ran.err == "verifying kernels.py:counting\n"
    assert ran.widest <= 80


@pytest.mark.medium
def test_a_pick_that_has_become_slower_is_exit_code_1(whet: Whet) -> None:
    stored("counting", NANOSECOND)
    ran = verify(whet, "kernels.py:counting", "-q")
    assert (ran.code, ran.err) == (1, "")
    assert "[n=1] takes" in ran.out
    assert "1 slower" in ran.out
    assert ran.widest <= 80


@pytest.mark.medium
def test_how_much_slower_is_a_failure_can_be_said(whet: Whet) -> None:
    stored("counting", NANOSECOND)
    assert verify(whet, "kernels.py:counting", "--fail-over", "1e9").code == 2
    assert verify(whet, "kernels.py:counting", "--fail-over", "100000000000%").code == 0


@pytest.mark.medium
def test_one_bad_pick_among_several_is_exit_code_1(whet: Whet) -> None:
    stored("counting", HOUR)
    stored("hurting", HOUR)
    ran = verify(whet, "kernels.py:counting", "kernels.py:hurting")
    assert ran.code == 1
    assert "2 picks: 1 ok, 1 fails" in ran.out
    assert "it hurts" in ran.out


@pytest.mark.medium
def test_json_has_the_ratios_and_what_was_not_verified(whet: Whet) -> None:
    stored("counting", NANOSECOND)
    ran = verify(whet, "kernels.py:counting", "kernels.py:unknown", "--json")
    found = json.loads(ran.out)

    assert ran.code == 1
    assert (found["failed"], found["fail_over"]) == (True, 0.03)
    (pick,) = found["picks"]
    assert pick["verdict"] == "slower"
    assert pick["ratio"]["low"] <= pick["ratio"]["mid"] == pytest.approx(pick["now_ns"])
    assert pick["speedup"]["low"] > 1
    assert pick["beats_first"] is True
    assert [one["what"] for one in found["not_verified"]] == ["kernels.py:unknown"]


@pytest.mark.medium
def test_the_store_is_as_it_was_unless_told_to_record(whet: Whet) -> None:
    stored("counting", HOUR)

    def trials() -> int:
        with open_store("s.db", read_only=True) as store:
            return sum(one.trials for one in store.workloads())

    verify(whet, "kernels.py:counting")
    assert trials() == 1
    verify(whet, "kernels.py:counting", "--record")
    assert trials() == 3


def test_what_was_never_tuned_is_said_with_the_remedy(whet: Whet) -> None:
    stored("counting", HOUR)
    ran = verify(whet, "kernels.py:unknown")
    assert (ran.code, ran.out) == (1, "")
    assert "'whet tune kernels.py:unknown'" in ran.err


def test_without_a_store_that_is_said_and_none_is_made(whet: Whet) -> None:
    ran = verify(whet, "kernels.py:counting", "--record")
    assert ran.code == 1
    assert "s.db" in ran.err
    assert not Path("s.db").exists()


@pytest.mark.medium
def test_other_keys_that_are_stored_are_named(whet: Whet) -> None:
    stored("counting", HOUR)
    here = locate("kernels.py:counting").workload()  # type: ignore[union-attr]
    other = replace(here, key=type(here.key)({"size": 7}))
    with open_store("s.db") as store:
        store.put_workload(other)
        store.append([a_trial(other, {"n": 1})])
    ran = verify(whet, "kernels.py:counting")
    assert ran.code == 0
    assert "not verified: counting(size=7)" in ran.out


@pytest.mark.parametrize("text", ["lots", "-3%", "", "3%%"])
def test_an_allowance_that_cannot_be_read_is_refused_before_anything_runs(
    whet: Whet, text: str
) -> None:
    assert "such as 3%" in refused(verify(whet, "kernels.py:counting", f"--fail-over={text}"))


def test_a_function_takes_no_key(whet: Whet) -> None:
    stored("counting", HOUR)
    assert "takes no --key" in refused(verify(whet, "kernels.py:counting", "--key", "n=1"))


@pytest.mark.medium
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_c_kernel_is_built_again(whet: Whet) -> None:
    Path("kernels.py").write_text(NATIVE)
    stored("twice", HOUR, {"STEP": 4})
    ran = verify(whet, "kernels.py:twice")
    assert ran.code == 0, ran.err
    assert "1 pick: 1 ok" in ran.out
