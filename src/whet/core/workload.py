"""`Workload`: what is being tuned, the `Device` it runs on, and the `Origin` of its source."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from whet.core.config import frozen_values
from whet.core.decoding import text, texts
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property

# One source may be tuned from copies of a file; nobody needs all of them.
MOST_PLACES = 8


@dataclass(frozen=True)
class Limits:
    """What the device has. None where it is unknown or has no such thing."""

    shared_memory_bytes: int | None = None
    registers: int | None = None
    threads: int | None = None
    l2_bytes: int | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Limits:
        if not all(value is None or type(value) is int for value in data.values()):
            raise ValueError("a limit is not a whole number")
        return cls(**data)


@dataclass(frozen=True)
class Device:
    name: str
    vendor: str
    architecture: str
    driver: str = ""
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def of_name(cls, name: str) -> Device:
        """One of which only the name is known, from a file of somebody else's."""
        lowered = name.lower()
        if any(word in lowered for word in ("nvidia", "geforce", "tesla", "quadro")):
            return cls(name, "nvidia", architecture="")
        amd = any(word in lowered for word in ("amd", "radeon", "instinct"))
        return cls(name, "amd" if amd else "", architecture="")

    def to_json(self) -> dict[str, Any]:
        return {"v": 1, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Device:
        return cls(
            name=text(data, "name"),
            vendor=text(data, "vendor"),
            architecture=text(data, "architecture"),
            driver=text(data, "driver"),
            limits=Limits.from_json(data["limits"]),
        )


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
            raise ValueError("'places' is not a list of strings")
        return cls(text(data, "code"), FrozenMap(texts(data, "captured")), tuple(places))


@dataclass(frozen=True)
class Workload:
    """A kernel, the problem it is given, and what it is built with and run on.

    Two workloads with one `id` may share results without a second look (a strict match); the same
    `kernel` on another key, device or toolchain is a loose match, and the caller is told so.
    `fingerprint` covers the source and what it calls; `key` the shapes, dtypes and the like.
    `origin` says what the source is made of, and is no part of what makes two workloads the same.
    """

    kernel: str
    fingerprint: str
    device: Device
    key: FrozenMap[Any] = field(default_factory=FrozenMap)
    toolchain: FrozenMap[str] = field(default_factory=FrozenMap)
    origin: Origin = field(default_factory=Origin, compare=False)

    @cached_property
    def id(self) -> str:
        # Limits are left out: free memory or a driver's report of them may change between runs.
        identity = [
            self.kernel,
            self.fingerprint,
            dict(self.key),
            dict(self.toolchain),
            [self.device.name, self.device.vendor, self.device.architecture, self.device.driver],
        ]
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def __repr__(self) -> str:
        return f"Workload({self}, id={self.id!r})"

    def __str__(self) -> str:
        key = ", ".join(f"{name}={value}" for name, value in self.key.items())
        return f"{self.kernel}({key}) on {self.device.name}"

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "id": self.id,
            "kernel": self.kernel,
            "fingerprint": self.fingerprint,
            "key": dict(self.key),
            "toolchain": dict(self.toolchain),
            "device": self.device.to_json(),
            **({"origin": self.origin.to_json()} if self.origin else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Workload:
        return cls(
            kernel=text(data, "kernel"),
            fingerprint=text(data, "fingerprint"),
            device=Device.from_json(data["device"]),
            key=frozen_values(data["key"]),
            toolchain=FrozenMap(texts(data, "toolchain")),
            origin=Origin.from_json(data["origin"]) if "origin" in data else Origin(),
        )


def captured_differences(now: Origin, before: Origin) -> dict[str, tuple[str, str]]:
    """What one code has captured now and before, by name, where that is not the same."""
    shared = now.captured.keys() & before.captured.keys()
    return {
        name: (now.captured[name], before.captured[name])
        for name in sorted(shared)
        if now.captured[name] != before.captured[name]
    }
