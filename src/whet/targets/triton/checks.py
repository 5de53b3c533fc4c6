"""Whether a config computes what it should: compared with a reference, or hashed bit by bit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from zlib import crc32

from whet.core.config import Value
from whet.core.errors import TargetError, did_you_mean
from whet.measure.bench.bits import (
    BIT_CHECKS,
    EVEN,
    LAUNCHES,
    REAL,
    WIDE,
    BitCheck,
    bit_facts,
)
from whet.measure.bench.protocol import DeviceRoom, Verdict, is_out_of_memory
from whet.targets.base import asked
from whet.workers.process import no_forks

# A function from the arguments by name to the expected outputs by name, or "agree": whatever the
# first config that ran has written. The others are about bits.
Check = (
    Literal["agree", "bitwise", "deterministic"] | Callable[[Mapping[str, Any]], Mapping[str, Any]]
)

_RELATIVE = {"float64": 1e-8, "float32": 1e-3, "float16": 2e-2, "bfloat16": 5e-2}


class OutputGate:
    """Compares what a config wrote with a reference, within what its dtype can hold.

    What it has to keep for that is taken from `room`; `notes` are for people."""

    def __init__(self, check: Check, room: DeviceRoom, notes: list[str]) -> None:
        self._check = check
        self._room = room
        self._notes = notes
        self._expected: dict[str, Any] | None = None

    @property
    def settled(self) -> bool:
        """Whether it is known what is right."""
        return self._expected is not None

    def expected(self, named: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What a check function says; None where a config has to run first."""
        self.prepare(named)
        return self._expected

    def prepare(self, named: Mapping[str, Any]) -> None:
        """Asks the reference once, before any config has touched the arguments."""
        if self._expected is None and callable(self._check):
            with no_forks():  # it may well compute its answer with NumPy
                self._expected = _checked(asked("check=", partial(self._check, {**named})), named)

    def judge(self, named: Mapping[str, Any], written: Sequence[str]) -> Verdict:
        if self._expected is None:
            outputs = [name for name in written if hasattr(named.get(name), "clone")]
            self._expected = self._kept({name: named[name] for name in outputs})
            return Verdict(True, "")
        for name, expected in self._expected.items():
            wrong = _compared(name, named[name], expected)
            if wrong:
                return Verdict(False, wrong)
        return Verdict(True, "")

    def let_go(self) -> None:
        """Drops what it compares with; the next to be judged says what that is."""
        self._expected = None

    def _kept(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Copies of what there is memory for."""
        kept = {}
        for name, tensor in outputs.items():
            try:
                kept[name] = self._room.copy_of(tensor)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self._notes.append(
                    f"not enough memory to copy '{name}' for comparison, so what configs write "
                    "there is not checked; give check= a function, or free some memory"
                )
        return kept


def _compared(name: str, actual: Any, expected: Any) -> str:
    """On the host where the device has no room for it."""
    try:
        return _difference(name, actual, expected)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    return _difference(name, actual.cpu(), expected.cpu())


def _difference(name: str, actual: Any, expected: Any) -> str:
    dtype = str(actual.dtype).removeprefix("torch.")
    relative = _RELATIVE.get(dtype, 0.25 if dtype.startswith("float8") else 0.0)
    one, two = actual.double(), expected.to(actual.device).double()
    allowed = relative * (two.abs() + (two.abs().mean() if two.numel() else 0.0))
    wrong = ~((one - two).abs() <= allowed) & ~(one.isnan() & two.isnan()) & (one != two)
    count = int(wrong.sum())
    if count == 0:
        return ""
    first = int(wrong.flatten().nonzero()[0])
    return (
        f"output '{name}': {count} of {one.numel()} elements differ, the first at {first}: "
        f"got {one.flatten()[first].item():.6g}, expected {two.flatten()[first].item():.6g}"
    )


def _checked(answer: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(answer, Mapping):
        raise TargetError(
            f"check= returned a {type(answer).__name__}; return a dict from the names of the "
            "outputs to what they must hold"
        )
    for name in answer:
        if name not in named:
            raise TargetError(f"check= returned '{name}', no argument{did_you_mean(name, named)}")
    return dict(answer)


# Elements that are hashed at once, of four bytes each; their products have eight.
_CHUNK = 1 << 21
_FIRST, _SECOND = 0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9

# A number that becomes an address or the end of a loop, or that is asserted to be something, must
# stay what the caller made it.
_NUMBERS_LEAD_ON = re.compile(r"arith\.fpto[su]i|scf\.while|bitcast|tt\.assert")


def bit_check_of(tuner: Any) -> BitCheck | None:
    check = tuner.whet_check
    return next((one for one in BIT_CHECKS if one == check), None)


@dataclass(frozen=True)
class Traits:
    """What of a kernel's code matters here: whether it may run on made inputs, and whether it has
    atomics, which make it likely to differ from itself."""

    made_inputs: bool
    atomics: bool

    @classmethod
    def of(cls, ttir: Any) -> Traits:
        text = str(ttir or "")
        return cls(bool(text) and not _NUMBERS_LEAD_ON.search(text), "tt.atomic" in text)


@dataclass(frozen=True)
class Written:
    """Arguments by name, which of them a launch writes and reads, and where their memory is."""

    named: Mapping[str, Any]
    written: Sequence[str]
    read: Sequence[str]
    address: Callable[[Any], int | None]

    def outputs(self) -> dict[str, Any]:
        return self._tensors(self.written)

    def inputs(self) -> dict[str, Any]:
        found = self._tensors(dict.fromkeys(self.read))
        return {name: one for name, one in found.items() if _is_floating(one)}

    def _tensors(self, names: Any) -> dict[str, Any]:
        """Tensors, those behind descriptors, and those in tuples."""
        found: dict[str, Any] = {}
        for name in names:
            value = self.named.get(name)
            for place, one in enumerate(value if isinstance(value, tuple | list) else (value,)):
                tensor = getattr(one, "base", None) if hasattr(one, "block_shape") else one
                if hasattr(tensor, "untyped_storage"):
                    found[f"{name}.{place}" if isinstance(value, tuple | list) else name] = tensor
        return found


class BitsExamination:
    """Runs configs of one call and hashes what they write. All launches begin from the same memory,
    so that bytes that none of them writes are the same for all; between rows there is nothing to
    look at, since only a tensor's own elements are hashed."""

    def __init__(self, room: DeviceRoom) -> None:
        self._room = room
        self._before: dict[str, Any] = {}

    def let_go(self) -> None:
        self._before = {}

    def facts(
        self,
        args: Written,
        traits: Traits,
        launch: Callable[[], None],
        leave: Callable[[], None],
    ) -> dict[str, Value]:
        outputs, inputs = args.outputs(), args.inputs()
        only_real = "" if traits.made_inputs else "its code computes addresses or loops from them"
        made = inputs if traits.made_inputs else {}
        self._keep({**outputs, **made})
        places = {args.address(one) for one in outputs.values()}
        again = {name: one for name, one in made.items() if args.address(one) in places}
        runs: dict[str, list[dict[str, str]]] = {}
        try:
            for kind in (REAL, EVEN, WIDE) if made else (REAL,):
                for name, tensor in made.items() if kind != REAL else ():
                    _fill(tensor, kind, name)
                count = LAUNCHES if kind == REAL or traits.atomics else 1
                runs[kind] = [self._once(outputs, again, kind, launch, leave) for _ in range(count)]
        finally:
            self._put_back({**outputs, **made})
        return bit_facts(runs, only_real)

    def _once(
        self,
        outputs: Mapping[str, Any],
        again: Mapping[str, Any],
        kind: str,
        launch: Callable[[], None],
        leave: Callable[[], None],
    ) -> dict[str, str]:
        self._put_back(outputs)
        for name, tensor in again.items() if kind != REAL else ():
            _fill(tensor, kind, name)
        launch()
        found = {name: tensor_hash(tensor) for name, tensor in outputs.items()}
        leave()
        return found

    def _keep(self, tensors: Mapping[str, Any]) -> None:
        for name, tensor in tensors.items():
            if name not in self._before:
                self._before[name] = self._copied(tensor)

    def _copied(self, tensor: Any) -> Any:
        """On the host where the device has no room for it."""
        try:
            return self._room.copy_of(tensor.data)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        return tensor.data.cpu()

    def _put_back(self, tensors: Mapping[str, Any]) -> None:
        for name, tensor in tensors.items():
            _write(tensor, self._before[name])


def _is_floating(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating_point)


def _write(tensor: Any, values: Any) -> None:
    """Through `data`: autograd counts what is written to a tensor itself."""
    if 0 not in [
        step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1
    ]:
        tensor.data.copy_(values)


def _fill(tensor: Any, kind: str, name: str) -> None:
    """The same numbers for the same argument in every process. A tensor whose elements share
    memory, such as an expanded one, stays as it is."""
    import torch

    generator = torch.Generator(device=tensor.device).manual_seed(crc32(name.encode()))
    target = tensor.data
    narrow = target.element_size() == 1
    values = (
        torch.empty(target.shape, dtype=torch.float32, device=target.device) if narrow else target
    )
    try:
        if kind == EVEN:
            values.uniform_(-1.0, 1.0, generator=generator)
        else:
            values.cauchy_(generator=generator).clamp_(-64.0, 64.0)
    except RuntimeError as error:
        if "single memory location" not in str(error):
            raise
        return
    if narrow:
        _write(tensor, values.to(target.dtype))


_weights: dict[str, Any] = {}


def tensor_hash(tensor: Any) -> str:
    """Sixteen hexadecimal digits that depend on every bit of every element, computed where the
    tensor is. Sums of integers do not depend on their order."""
    import torch

    data = tensor.data
    if data.numel() == 0:
        return "empty"
    data = torch.view_as_real(data) if data.is_complex() else data
    flat = data.contiguous().reshape(-1).view(torch.uint8)
    if flat.numel() % 4 or flat.storage_offset() % 4:
        padded = torch.zeros(-(-flat.numel() // 4) * 4, dtype=torch.uint8, device=flat.device)
        padded[: flat.numel()] = flat
        flat = padded
    words = flat.view(torch.int32)
    weights = _weights_on(words.device)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for number, start in enumerate(range(0, words.numel(), _CHUNK)):
        part = words[start : start + _CHUNK].to(torch.int64)
        mixed = (part + number * _FIRST % (1 << 31)).mul_(weights[: part.numel()])
        mixed ^= mixed >> 29
        total += mixed.mul_(_SECOND).bitwise_xor_(mixed >> 32).sum()
    return f"{int(total) & (1 << 64) - 1:016x}"


def _weights_on(device: Any) -> Any:
    import torch

    place = str(device)
    if place not in _weights:
        noise = torch.Generator().manual_seed(1)
        made = torch.randint(-(1 << 62), 1 << 62, (_CHUNK,), generator=noise, dtype=torch.int64)
        _weights[place] = (made | 1).to(device)
    return _weights[place]
