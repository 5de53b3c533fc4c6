"""Hostile input: nothing that is read gives a traceback, a hang, or a wrong answer taken for right.

A small share of what `benchmarks/fuzz.py` does, and all it ever found.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from fuzzing.everything import TARGETS, shares
from fuzzing.loop import fuzz
from fuzzing.mutation import mutator
from fuzzing.target import Target, attempt, regressions
from fuzzing.texts import ESCAPES
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.core import timeline
from whet.core.errors import SpaceError, UsageError
from whet.core.space import Space
from whet.core.timeline import Timeline
from whet.replay import files
from whet.replay.reading import read_table

with contextlib.suppress(ImportError):
    # A command line may ask for it, which would take seconds while every line is being counted.
    import torch  # noqa: F401

# JSON made of valid samples: any value in any place.
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["", "\ud800", "ok", "-1", "NaN", "\x1b["])
)
any_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def edited(draw: st.DrawFn, sample: Any) -> str:
    """`sample` as JSON, with up to three of its values replaced, dropped or named anew."""
    whole = [json.loads(json.dumps(sample))]
    for _ in range(draw(st.integers(1, 3))):
        parent, place = draw(st.sampled_from(_places(whole)))
        kind = draw(st.sampled_from(["replace", "replace", "drop", "rename"]))
        if kind == "replace" or parent is whole:
            parent[place] = draw(any_values)
        elif kind == "rename" and isinstance(parent, dict):
            parent[draw(st.text(max_size=3))] = parent.pop(place)
        else:
            del parent[place]
    return json.dumps(whole[0])


def _places(whole: list[Any]) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = [(whole, 0)]
    for parent, place in found:
        value = parent[place]
        inside = (
            value
            if isinstance(value, dict)
            else range(len(value))
            if isinstance(value, list)
            else ()
        )
        found += [(value, at) for at in inside]
    return found


# So many inputs take some ten seconds on two cores.
INPUTS = 6_000

ALL = list(TARGETS.values())
TREES = [target for target in ALL if target.shape == "json"]
FOUND = [(target, path) for target in ALL for path in regressions(target)]


@pytest.mark.medium
@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
def test_valid_samples_broken_at_random_are_read_or_refused(target: Target) -> None:
    found = fuzz(target, shares(INPUTS, list(TARGETS))[target.name] + 20, seed=1)
    assert not found.crashes, "\n".join(crash.text for crash in found.crashes.values())


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
def test_a_seed_says_which_inputs_are_made(target: Target) -> None:
    first, second = [], []
    for made in (first, second):
        watched = Target(**{**vars(target), "parse": made.append})
        fuzz(watched, 40, seed=3)
    assert first == second
    assert len(set(first)) > 20


@pytest.mark.medium
@pytest.mark.parametrize("target", TREES, ids=lambda target: target.name)
def test_valid_samples_with_any_value_anywhere_are_read_or_refused(target: Target) -> None:
    samples = [json.loads(seed) for seed in target.seeds()]

    @settings(max_examples=25, database=None, derandomize=True)
    @given(st.sampled_from(samples).flatmap(edited))
    def broken(text: str) -> None:
        crash = attempt(target, text.encode())
        assert crash is None, crash.text

    broken()


@pytest.mark.parametrize(("target", "path"), FOUND, ids=lambda one: getattr(one, "name", None))
def test_what_once_was_a_crash_is_none(target: Target, path: Path) -> None:
    crash = attempt(target, path.read_bytes())
    assert crash is None, crash.text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_an_input_in_any_encoding_can_be_broken_further(encoding: str) -> None:
    data = json.dumps({"a": [1, 2]}).encode(encoding)
    mutate = mutator("json", ())
    assert any(mutate(data, data, random.Random(seed)) != data for seed in range(20))


@pytest.mark.parametrize("at", range(len(ESCAPES)))
def test_no_expression_gets_out_of_its_grammar(at: int) -> None:
    crash = attempt(TARGETS["constraint"], ESCAPES[at].encode(errors="surrogatepass"))
    assert crash is None, crash.text


@pytest.mark.parametrize(
    "text",
    [
        "a.__class__ == 1",
        "a.bit_length() > 1",
        "[x for x in (a,)] == 1",
        "(lambda: a)() == 1",
        "f'{a}' == s",
        "__import__('os').getpid() == a",
        "max(a, key=len) == 1",
        "(a := 5) == 5",
        "2 ** 100000000 > a",
        "a << 100000000 > 0",
        "s * 1000000000 == s",
        "'%9999999999d' % a == s",
    ],
)
def test_code_in_an_expression_is_refused(text: str) -> None:
    with pytest.raises(SpaceError):
        list(Space({"a": [1, 2], "s": ["x", "y"]}, [text]))


@pytest.mark.medium
def test_a_table_that_unzips_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LARGEST_BYTES", 1 << 20)
    bomb = tmp_path / "bomb.whet.json.gz"
    bomb.write_bytes(gzip.compress(bytes(64 << 20)))
    tracemalloc.start()
    with pytest.raises(UsageError, match="decompresses to more than"):
        read_table(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.medium
def test_a_timeline_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "_MOST_BYTES", 1 << 20)
    bomb = b"wtl\x01" + zlib.compress(bytes(64 << 20), level=1)
    with pytest.raises(ValueError, match="more than 1 MiB"):
        Timeline.from_packed(bomb)
