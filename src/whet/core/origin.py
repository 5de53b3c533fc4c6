"""`Origin`: where a workload's source comes from, and which parts its fingerprint is made of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from whet.core.decoding import text, texts
from whet.core.frozen import FrozenMap

# One source may be tuned from copies of a file; nobody needs all of them.
MOST_PLACES = 8


@dataclass(frozen=True)
class Origin:
    """No part of a workload's identity: it explains why two workloads of a kernel are apart.

    `code` is the fingerprint of the source without the values that it captures from around it;
    `captured` are those values by name, as text, without the ones that the key claims. `places`
    are `FILE.py:NAME` as it was typed or is defined, the latest first. Everything is empty where
    it is not known, as in stores of whet 0.1.
    """

    code: str = ""
    captured: FrozenMap[str] = field(default_factory=FrozenMap)
    places: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.code or self.places)

    def at(self, place: str) -> Origin:
        """The same with one more place, in front."""
        places = dict.fromkeys((place, *self.places) if place else self.places)
        return replace(self, places=tuple(places)[:MOST_PLACES])

    def over(self, older: Origin) -> Origin:
        """What is known when both are."""
        known = self if self.code else older
        places = tuple(dict.fromkeys((*self.places, *older.places)))[:MOST_PLACES]
        return Origin(known.code, known.captured, places)

    def portable(self) -> Origin:
        """Without the folders of this machine."""
        places = dict.fromkeys(os.path.basename(place) for place in self.places)
        return replace(self, places=tuple(places))

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "captured": dict(self.captured),
            "places": list(self.places),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Origin:
        places = data["places"]
        if type(places) is not list or not all(type(place) is str for place in places):
            raise ValueError("'places' is not a list of text")
        return cls(text(data, "code"), FrozenMap(texts(data, "captured")), tuple(places))


def captured_differences(now: Origin, before: Origin) -> dict[str, tuple[str, str]]:
    """What one code has captured now and before, by name, where that is not the same."""
    shared = now.captured.keys() & before.captured.keys()
    return {
        name: (now.captured[name], before.captured[name])
        for name in sorted(shared)
        if now.captured[name] != before.captured[name]
    }
