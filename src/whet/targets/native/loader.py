"""Loads a built kernel and calls it. Runs in the measuring process, which it may take down."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whet.core.config import Config
from whet.core.errors import ConfigFailure, host_failure
from whet.core.lazy import cached_property
from whet.core.status import Status
from whet.measure.bench.bits import (
    EVEN,
    LAUNCHES,
    REAL,
    WIDE,
    array_hash,
    bit_facts,
    fill_array,
)
from whet.measure.bench.protocol import Verdict, compare
from whet.targets.native.arguments import as_ctypes


@dataclass(frozen=True)
class NativeLoader:
    """Everything a fresh process needs to run any config of one kernel.

    All configs share one set of arrays, since only one runs at a time.
    """

    args: Mapping[str, Any]
    expected: Mapping[str, Any] | None
    rtol: float
    atol: float
    bits: tuple[str, ...] | None = None

    @cached_property
    def arrays(self) -> dict[str, Any]:
        return {name: v.copy() for name, v in self.args.items() if isinstance(v, np.ndarray)}

    @cached_property
    def home(self) -> Path:
        """The folder of this process, asked before any kernel has run: one may go elsewhere."""
        return Path.cwd()

    def reset(self) -> None:
        """Puts the arguments back to what the author gave."""
        for name, array in self.arrays.items():
            np.copyto(array, self.args[name])

    def load(self, config: Config, artifact: bytes) -> LoadedKernel:
        self.home.mkdir(exist_ok=True)  # a kernel may have removed it
        path = self.home / f"{config.id}.so"
        try:
            path.write_bytes(artifact)
        except OSError as error:
            raise host_failure(f"[{config}] could not be loaded", str(error)) or error from None
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            memory = "allocate" in str(error) or "map segment" in str(error)
            status = Status.RESOURCES if memory else Status.RUN_ERROR
            raise ConfigFailure(status, f"cannot be loaded: {error}") from None
        finally:
            path.unlink()  # mapped already; nothing is left if this process is killed
        return LoadedKernel(self, library)


class LoadedKernel:
    """One config's function."""

    def __init__(self, loader: NativeLoader, library: ctypes.CDLL) -> None:
        self._loader = loader
        self._values = [
            as_ctypes(name, loader.arrays.get(name, value)) for name, value in loader.args.items()
        ]
        self._repeat = library.whet_repeat
        self._repeat.restype = None
        self._refused = _refused_counter(library)
        self.facts: Mapping[str, Any] = {}
        self.compares = loader.expected is not None or loader.bits is not None

    def repeat(self, n: int) -> None:
        self._repeat(ctypes.c_long(n), *self._values)

    def check(self) -> Verdict:
        """Runs once on fresh arguments and compares the outputs with the reference."""
        self._loader.reset()
        self._refused.value = 0
        self.repeat(1)
        verdict = self._compared()
        if verdict.ok and self._loader.bits is not None:
            self.facts = self._bits(self._loader.bits)
        if not verdict.ok and self._refused.value:
            raise ConfigFailure(
                Status.RESOURCES, f"could not allocate {self._refused.value:,} bytes"
            )
        return verdict

    def _compared(self) -> Verdict:
        expected = self._loader.expected
        if expected is None:
            return Verdict(True, "")
        actual = {name: self._loader.arrays[name] for name in expected}
        return compare(actual, expected, rtol=self._loader.rtol, atol=self._loader.atol)

    def _bits(self, outputs: tuple[str, ...]) -> dict[str, Any]:
        """What it writes, launch by launch, each from the same arguments."""
        loader = self._loader

        def launch(inputs: str) -> dict[str, str]:
            loader.reset()
            for seed, array in enumerate(loader.arrays.values()) if inputs != REAL else ():
                fill_array(array, inputs, seed)
            self.repeat(1)
            return {name: array_hash(loader.arrays[name]) for name in outputs}

        runs = {kind: [launch(kind) for _ in range(LAUNCHES)] for kind in (REAL, EVEN, WIDE)}
        loader.reset()
        return bit_facts(runs)

    def close(self) -> None:
        """The library stays mapped: a kernel may have left threads or handlers in it."""


def _refused_counter(library: ctypes.CDLL) -> ctypes.c_uint64:
    """Bytes of the last allocation that failed; stays 0 where the allocators are not wrapped."""
    try:
        return ctypes.c_uint64.in_dll(library, "whet_refused_bytes")
    except ValueError:
        return ctypes.c_uint64(0)
