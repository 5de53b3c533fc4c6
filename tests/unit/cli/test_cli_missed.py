"""`whet tune --missed`: what production met is tuned later, or told with the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet as package
from cli_runs import Whet, refused
from whet.core.miss import Miss
from whet.targets.files import load_module
from whet.testing.samples import a_workload

FUNCTION = """
import whet

def work(n, block):
    return sum(range(block))

work_4 = whet.function(work, {"block": [2000, 10]}, args=(4,), mode="cached", isolate=False)
"""


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))


def missed() -> list[Miss]:
    with package.open_store() as store:
        return store.missed()


def recorded(name: str = "work_4", text: str = FUNCTION) -> Any:
    """The target of a program that ran in mode `record`."""
    Path("program.py").write_text(text)
    target = getattr(load_module(Path("program.py").resolve()), name)
    package.choose(target, mode="record")
    return target


@pytest.mark.medium
def test_a_missed_function_is_tuned_though_its_own_mode_is_another(whet: Whet) -> None:
    target = recorded()
    assert [miss.where for miss in missed()] == [f"{Path('program.py').resolve()}:work_4"]
    ran = whet("tune", "--missed", "-q")
    assert ran.code == 0
    assert "work(0=4)" in ran.out
    assert missed() == []
    assert package.choose(target).source == "exact"


@pytest.mark.medium
def test_where_nothing_was_missed_it_says_so(whet: Whet) -> None:
    recorded()
    whet("tune", "--missed", "-q")
    ran = whet("tune", "--missed")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("no missed keys")


def test_without_a_store_nothing_is_made(whet: Whet, tmp_path: Path) -> None:
    assert whet("tune", "--missed").code == 1
    assert not (tmp_path / "store.db").exists()


def test_a_key_nobody_knows_the_place_of_stays_and_the_remedy_is_told(whet: Whet) -> None:
    with package.open_store() as store:
        store.miss(Miss(a_workload()))
    ran = whet("tune", "--missed")
    assert ran.code == 1
    assert "whet tune FILE.py:NAME --missed" in " ".join(ran.out.split())
    assert len(missed()) == 1


@pytest.mark.medium
def test_a_file_that_has_gone_is_told_and_the_others_are_tuned(whet: Whet) -> None:
    recorded()
    with package.open_store() as store:
        store.miss(Miss(a_workload(), "/nowhere/kernels.py:matmul"))
    ran = whet("tune", "--missed", "-q", "--json")
    found = json.loads(ran.out)
    assert ran.code == 1
    assert [one["workload"]["kernel"] for one in found["tuned"]] == ["work"]
    assert "/nowhere/kernels.py" in found["left"][0]["why"]


def test_another_key_than_the_one_that_was_met_is_not_tuned_in_its_place(whet: Whet) -> None:
    recorded()
    # Of another length: byte code of a file that only changed within its second is still used.
    Path("program.py").write_text(FUNCTION.replace("args=(4,)", "args=(15,)"))
    ran = whet("tune", "--missed", "-q")
    assert ran.code == 1
    assert "differs: key" in " ".join(ran.out.split())
    assert len(missed()) == 1


@pytest.mark.medium
def test_a_key_whose_source_has_changed_is_tuned_as_it_is_now(whet: Whet) -> None:
    recorded()
    Path("program.py").write_text(FUNCTION.replace("sum(range", "max( range"))
    assert whet("tune", "--missed", "-q").code == 0
    assert missed() == []


@pytest.mark.medium
def test_a_named_file_outranks_where_it_was_met(whet: Whet) -> None:
    recorded()
    Path("program.py").rename("moved.py")
    assert whet("tune", "moved.py:work_4", "--missed", "-q").code == 0
    assert missed() == []


def test_keys_cannot_be_given_as_well(whet: Whet) -> None:
    assert "omit --key" in refused(whet("tune", "--missed", "--key", "n=4"))
