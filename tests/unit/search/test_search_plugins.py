"""Strategies of other packages, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import whet
from plugin_package import install
from whet.core.errors import UsageError
from whet.core.plugins import PluginError
from whet.core.space import Space
from whet.learn.prior import Prior
from whet.search import check_search, make_strategy, takes_prior

SPACE = Space({"a": [1, 2, 3]})

MODULE = """
from whet.search.unguided import Grid

class Backwards(Grid):
    name = "backwards"

    def __init__(self, space, seed, transfer=None):
        super().__init__(space, seed)
        self.transfer = transfer
        self._configs = iter(list(space)[::-1])

class Unsaid:
    name = "unsaid"

    def __init__(self, space, seed):
        self._inner = Backwards(space, seed)
        self.ask, self.tell = self._inner.ask, self._inner.tell

def a_number(space, seed):
    return 3

def failing(space, seed):
    raise ZeroDivisionError("no reason")

NOTHING = None
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("Backwards", "Unsaid", "a_number", "failing", "NOTHING")
    points = {name.lower(): f"backwards_strategies:{name}" for name in names}
    folder = install(tmp_path, {"whet.strategies": points}, {"backwards_strategies": MODULE})
    monkeypatch.syspath_prepend(folder)


def test_one_is_made_by_its_name() -> None:
    strategy = make_strategy("backwards", SPACE)
    assert [config["a"] for config in strategy.ask(5)] == [3, 2, 1]


def test_one_tunes() -> None:
    target = whet.function(lambda n: sum(range(n)), {"n": [200, 100]}, name="sum", isolate=False)
    result = whet.tune(target, store=":memory:", search="backwards")
    assert result.run.search == "backwards"
    assert len(result.trials) == 2


def test_it_is_given_what_it_takes_and_no_more() -> None:
    prior = Prior.__new__(Prior)
    assert make_strategy("backwards", SPACE, 0, prior, whole=True).transfer is prior  # type: ignore[attr-defined]
    assert takes_prior("backwards")
    assert not takes_prior("unsaid")


def test_one_that_does_not_say_whether_it_is_guided_is_taken_for_one_that_is_not() -> None:
    assert make_strategy("unsaid", SPACE).guided is False


def test_a_name_that_is_nearly_one_is_corrected() -> None:
    with pytest.raises(UsageError, match="unknown search 'backward'; did you mean 'backwards'"):
        check_search("backward")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a_number", "it made 'int', which has no name, ask and tell"),
        ("failing", "ZeroDivisionError: no reason"),
        ("nothing", "NoneType is not callable"),
    ],
)
def test_a_broken_one_is_refused_in_one_line(name: str, why: str) -> None:
    with pytest.raises(PluginError) as caught:
        make_strategy(name, SPACE)
    assert str(caught.value).endswith(f" '{name}' of package some-parts: {why}")
