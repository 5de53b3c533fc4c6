"""Hypothesis strategies made of valid samples: any value in any place."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["", "\ud800", "ok", "-1", "NaN", "\x1b["])
)
values = st.recursive(
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
            parent[place] = draw(values)
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
