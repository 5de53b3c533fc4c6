"""What a Triton config writes, as hashes: on the call's own inputs, and on inputs made to show a
changed order of summation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from whet.core.config import Value
from whet.measure import DeviceRoom, is_out_of_memory
from whet.measure.bench.bits import (
    BIT_CHECKS,
    EVEN,
    LAUNCHES,
    REAL,
    WIDE,
    BitCheck,
    bit_facts,
)

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
