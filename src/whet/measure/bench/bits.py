"""Whether configs give the same bits: as the reference, or as themselves a launch before.

A loaded config that is asked for its bits has them among its facts, as hashes of what it wrote on
each set of inputs. Who may win is decided here, in the tuner's process, so that it makes no
difference in which process a config ran.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.core.timing import median
from whet.measure.bench.protocol import Answer, Bench, Sampled, Visit

if TYPE_CHECKING:
    import numpy.typing as npt

BitCheck = Literal["bitwise", "deterministic"]
BIT_CHECKS: tuple[BitCheck, ...] = ("bitwise", "deterministic")

# How often a config runs on the same inputs to show whether it repeats itself.
LAUNCHES = 5

# Names of facts: the hashes as (inputs, output, hash), where a config differed from itself, why
# there are no made inputs, and what a refused config's launch took.
BITS, VARIES, ONLY_REAL, FREE_NS = "bits", "bits_vary", "bits_only_real", "free_ns"

# The sets of inputs: those of the call, random numbers between -1 and 1, and numbers of very
# different size, whose sum depends on the order in which they are added.
REAL, EVEN, WIDE = "real", "even", "wide"
_INPUTS = {
    REAL: "on the real inputs",
    EVEN: "on random inputs",
    WIDE: "on inputs of very different size",
}

# What a checked result is kept under: it is another one than the free best. No argument has a dot
# in its name.
CHECK_KEY = "whet.check"

Hashes = tuple[tuple[str, str, str], ...]


class DifferentBits(ConfigFailure):
    """A config that ran, was timed, and may not win."""

    def __init__(self, message: str, sampled: Sampled) -> None:
        super().__init__(Status.WRONG_RESULT, message)
        self.sampled = sampled

    @property
    def facts(self) -> Mapping[str, Value]:
        return {**self.sampled.facts, FREE_NS: median(self.sampled.reading.samples)}


@dataclass(frozen=True)
class Reference:
    """`varies` says where it differed from itself, empty where it did not. `config` is None where
    it ran in an earlier run, whose real inputs are not known."""

    config: Config | None
    hashes: Hashes
    varies: str = ""

    @classmethod
    def stored(cls, facts: Mapping[str, Value]) -> Reference | None:
        found = facts.get(BITS)
        if not isinstance(found, tuple):
            return None
        made = tuple(one for one in _hashes(facts) if one[0] != REAL)
        return cls(None, made or _hashes(facts), str(facts.get(VARIES, "")))


class ReferenceBench(Bench):
    """Another bench, with what it answers judged by `check`.

    The first config that runs is the reference, unless one is given. `notes` are for people.
    """

    def __init__(self, bench: Bench, check: BitCheck, reference: Reference | None = None) -> None:
        self._bench = bench
        self._reference = reference
        self.check = check
        self.notes: list[str] = []

    @property
    def in_process(self) -> bool:
        return self._bench.in_process

    @property
    def has_reference(self) -> bool:
        return self._reference is not None

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        if not visit.first:
            return self._bench.measure(visit)
        # One that may not win must not make others look hopeless, and its price is to be known.
        answers = self._bench.measure(replace(visit, hopeless=None))
        configs = {config.id: config for config, _ in visit.built}
        return tuple(
            self._judged(config, one) if isinstance(one, Sampled) else one
            for config, one in zip(configs.values(), answers, strict=True)
        )

    def forget(self, config: Config) -> None:
        self._bench.forget(config)

    def end_call(self) -> None:
        self._bench.end_call()

    def close(self) -> None:
        self._bench.close()

    def _judged(self, config: Config, one: Sampled) -> Answer:
        hashes, varies = _hashes(one.facts), str(one.facts.get(VARIES, ""))
        only_real = str(one.facts.get(ONLY_REAL, ""))
        if only_real:
            self._note(f"bits were compared on the real inputs only: {only_real}")
        if self.check == "deterministic":
            said = f"different bits from launch to launch: {varies}" if varies else ""
        elif self._reference is None or self._reference.config == config:
            said = ""
            self._become_reference(config, hashes, varies)
        else:
            said = self._difference(self._reference, hashes, varies)
            if not said and self._reference.config is None:
                self._become_reference(config, hashes, varies)
        return DifferentBits(said, one) if said else one

    def _become_reference(self, config: Config, hashes: Hashes, varies: str) -> None:
        self._reference = Reference(config, hashes, varies)
        if varies:
            self._note(
                f"[{config}] is the reference and differs from itself, so that no other config can "
                f"be compared with it, and it stays: {varies}"
            )
        elif not hashes:
            self._note("nothing that the kernel writes can be compared, so the first config stays")

    def _difference(self, reference: Reference, hashes: Hashes, varies: str) -> str:
        if reference.varies:
            return f"the reference differs from itself: {reference.varies}"
        if varies:
            return f"different bits from launch to launch: {varies}"
        if not reference.hashes:
            return "nothing that the kernel writes can be compared with the reference"
        found = {one[:2]: one[2] for one in hashes}
        for inputs, output, expected in reference.hashes:
            if found.get((inputs, output)) != expected:
                return f"{described(inputs, output)} the bits are not those of the reference"
        return ""

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def checked_key(check: BitCheck | None) -> dict[str, Any]:
    """What the check adds to a workload's key."""
    return {} if check is None else {CHECK_KEY: check}


def described(inputs: str, output: str) -> str:
    return f"output '{output}' {_INPUTS.get(inputs, inputs)}:"


def _hashes(facts: Mapping[str, Value]) -> Hashes:
    found: Any = facts.get(BITS, ())
    return tuple((str(one[0]), str(one[1]), str(one[2])) for one in found)


def bit_facts(
    runs: Mapping[str, Sequence[Mapping[str, str]]], only_real: str = ""
) -> dict[str, Value]:
    """The facts of a config from what it wrote: for each set of inputs, launch by launch, the hash
    of each output."""
    hashes: list[Value] = []
    varies = ""
    for inputs, launches in runs.items():
        first = launches[0]
        hashes += [(inputs, output, one) for output, one in first.items()]
        for number, later in enumerate(launches[1:], 2):
            changed = [output for output in first if later[output] != first[output]]
            if changed and not varies:
                varies = f"{described(inputs, changed[0])} launch {number} differs from the first"
    facts: dict[str, Value] = {BITS: tuple(hashes)}
    if varies:
        facts[VARIES] = varies
    if only_real:
        facts[ONLY_REAL] = only_real
    return facts


def array_hash(array: npt.NDArray[Any]) -> str:
    """Of the elements alone: neither gaps between rows nor padding inside of records count."""
    import numpy as np

    found = np.asarray(array)
    if found.dtype.names:
        return "".join(array_hash(found[name]) for name in found.dtype.names)
    return hashlib.blake2b(np.ascontiguousarray(found).tobytes(), digest_size=8).hexdigest()


def fill_array(array: npt.NDArray[Any], inputs: str, seed: int) -> None:
    """In place, the same numbers in every process; only floating-point numbers are changed."""
    import numpy as np

    if array.dtype.kind not in "fc":
        return
    noise = np.random.default_rng(seed)
    if inputs == EVEN:
        made = noise.uniform(-1.0, 1.0, array.shape)
    else:
        made = np.clip(noise.standard_cauchy(array.shape), -64.0, 64.0)
    array[...] = made.astype(array.dtype)


def value_hash(value: Any) -> str:
    """Of whatever a function returns: arrays by their elements, numbers by their bits, and tuples,
    lists and dicts of these."""
    if isinstance(value, Mapping):
        value = [part for item in value.items() for part in item]
    if isinstance(value, list | tuple):
        return hashlib.blake2b("".join(map(value_hash, value)).encode(), digest_size=8).hexdigest()
    if isinstance(value, float):
        return struct.pack("<d", value).hex()
    if value is None or isinstance(value, str | bytes | int | complex):
        return repr(value)
    numpy = getattr(value, "numpy", None)  # a tensor of torch's on the host
    return array_hash(numpy() if callable(numpy) else value)
