"""The specializations of a bundle, and the binaries that belong to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from whet.core.errors import BundleError
from whet.store.bundles.bundle import Bundle
from whet.store.bundles.writing import FolderBinaries
from whet.targets.triton.jit.libraries import abi, is_library
from whet.targets.triton.jit.records import Records
from whet.targets.triton.jit.specialization import RecordError, Specialization
from whet.targets.triton.packed.binary_cache import BinaryError


def packed_lines(found: Iterable[Specialization]) -> list[str]:
    """Without the folders of this machine."""
    return [json.dumps(_portable(one).to_json(), sort_keys=True) for one in found]


def specializations_in(bundle: Bundle) -> list[Specialization]:
    """Raises `BundleError` for lines that no `whet pack` has written."""
    found = []
    for number, line in enumerate(bundle.jit_lines(), 1):
        try:
            found.append(Specialization.from_json(json.loads(line)))
        except (RecordError, ValueError, RecursionError) as error:
            raise BundleError(
                f"bundle {bundle.path} was rejected: line {number} of its specializations: {error}"
            ) from None
    return found


def _portable(one: Specialization) -> Specialization:
    def base(place: str) -> str:
        return place.rpartition("/")[2]

    return replace(one, place=base(one.place), met=replace(one.met, caller=base(one.met.caller)))


@dataclass(frozen=True)
class JitBinaries:
    """Binaries of these specializations, libraries of the host, and what other folders hold."""

    records: Records
    found: tuple[Specialization, ...]
    others: FolderBinaries | None = None

    def keys(self) -> list[str]:
        wanted = {one.binary for one in self.found if one.binary}
        here = set(self.records.binaries.keys())
        libraries = {key for key in here - wanted if self._is_library(key)}
        others = set() if self.others is None else set(self.others.keys())
        return sorted((wanted & here) | libraries | others)

    def files(self, key: str) -> Mapping[str, bytes]:
        own = FolderBinaries(Path(self.records.binaries.path))
        if key in self.records.binaries:
            return own.files(key)
        assert self.others is not None
        return self.others.files(key)

    def _is_library(self, key: str) -> bool:
        try:
            packed = self.records.binaries.get(key)
        except BinaryError:
            return False
        return packed is not None and is_library(packed.metadata)

    @property
    def libraries(self) -> int:
        """Of this platform and ABI."""
        found = map(self.records.binaries.get, filter(self._is_library, self.keys()))
        return sum(one is not None and one.metadata.get("abi") == abi() for one in found)
