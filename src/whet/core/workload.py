"""`Workload`: what is being tuned."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from whet.core.config import frozen_values
from whet.core.decoding import text, texts
from whet.core.device import Device
from whet.core.frozen import FrozenMap
from whet.core.origin import Origin


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
