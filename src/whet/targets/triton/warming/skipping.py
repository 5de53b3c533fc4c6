"""Which launches a program can do without while its kernels are only being looked for.

A call that is not launched leaves its outputs as they are, which is whatever was in that memory.
Most programs do not mind: what they compute with it is not used. It must not be read on the host,
where it may decide how the program goes on, and it must not become an index, since one that is out
of range ends the process's use of the GPU. So every operation on such outputs is looked at, and
the first one that is not known to be harmless ends the pass.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import CodeType, FrameType
from typing import Any, Literal, Protocol

# Harmless with any numbers at all: nothing is read on the host, and nothing becomes an index.
_HARMLESS_NAMES = """
    mm bmm addmm addbmm baddbmm matmul linear dot mv addmv _scaled_mm convolution
    convolution_backward _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data
    native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward
    _fused_rms_norm _fused_rms_norm_backward native_batch_norm native_batch_norm_backward
    native_dropout native_dropout_backward dropout cat stack split_with_sizes_copy
    constant_pad_nd clone contiguous fill_ zero_ cumsum cumprod flip roll tril triu
    nll_loss_forward nll_loss_backward mse_loss_backward linalg_vector_norm norm _foreach_norm
    index_select gather embedding embedding_dense_backward index_add index_add_ scatter_add
    scatter_add_ _fused_adam_ _fused_adamw_ _fused_sgd_ empty_like zeros_like ones_like
    full_like rand_like randn_like new_empty new_zeros new_ones new_full new_empty_strided
    slice_backward select_backward as_strided_scatter sum_to_size repeat
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
    upsample_nearest2d max_pool2d_with_indices avg_pool2d squeeze_ unsqueeze_ transpose_ t_
    index _unsafe_index index_put index_put_ scatter scatter_ sort topk all any
    _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_attention_math
    uniform_ normal_ cummax logcumsumexp _safe_softmax logsumexp
"""
_HARMLESS = frozenset(_HARMLESS_NAMES.split())

_COPIES = frozenset(("_to_copy", "copy_", "_copy_from"))


class OutputsNeededError(BaseException):
    """A program needs what a launch that was left out would have computed. Not an `Exception`: it
    must reach whoever left the launch out."""


class SkipWatch(Protocol):
    """Around a pass in which launches are left out."""

    def may_skip(self, arguments: Iterable[Any]) -> bool:
        """Whether a kernel with these arguments need not be launched, and then it is not."""

    def has_unwritten(self, arguments: Iterable[Any]) -> bool:
        """Whether a launch that was left out would have written one of these."""

    def launched(self, arguments: Iterable[Any]) -> None:
        """A kernel is launched with these after all: what it computes from something unwritten is
        no better than that."""


def watch() -> AbstractContextManager[SkipWatch] | None:
    """None without torch, whose operations are what is looked at."""
    import sys

    return None if sys.modules.get("torch") is None else _watch()


def _watch() -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def tensors(values: Any) -> Iterator[Any]:
        return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))

    def given(arguments: Iterable[Any]) -> tuple[list[Any], bool]:
        """The tensors among a kernel's arguments, and whether some of its memory is reached in
        another way, by a pointer or a descriptor, of which torch would see nothing."""
        found, hidden, values = [], False, list(arguments)
        while values:
            value = values.pop()
            if isinstance(value, torch.Tensor):
                found.append(value)
            elif isinstance(value, list | tuple):
                values += value
            elif hasattr(value, "data_ptr") or hasattr(value, "base"):
                hidden = True
                values.append(getattr(value, "base", None))
        return found, hidden

    class Watch(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        """Storages that a launch would have written are `unwritten`, and so is all that is computed
        from them. One that is freed may come back as another's: that only makes this stricter."""

        def __init__(self) -> None:
            super().__init__()
            self.unwritten: set[int] = set()
            self._within = threading.local()

        @contextmanager
        def within_operation(self) -> Iterator[None]:
            """What an operation does inside, torch does not show: a library's own, one that a
            library has replaced, or one of a subclass of tensors."""
            before, self._within.now = getattr(self._within, "now", False), True
            try:
                yield
            finally:
                self._within.now = before

        def may_skip(self, arguments: Iterable[Any]) -> bool:
            found, hidden = given(arguments)
            if hidden or not found or getattr(self._within, "now", False):
                return False
            if not all(tensor.is_floating_point() for tensor in found):
                return False  # a number that is written may be the next kernel's index
            self.unwritten.update(map(_storage, found))
            return True

        def has_unwritten(self, arguments: Iterable[Any]) -> bool:
            return not self.unwritten.isdisjoint(map(_storage, given(arguments)[0]))

        def launched(self, arguments: Iterable[Any]) -> None:
            storages = set(map(_storage, given(arguments)[0]))
            if not self.unwritten.isdisjoint(storages):
                self.unwritten |= storages

    def dispatch(self: Watch, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = [t for t in tensors((args, kwargs)) if _storage(t) in self.unwritten]
        if found and not harmless(func, found, args, kwargs):
            raise OutputsNeededError(str(func))
        with self.within_operation():
            made = func(*args, **kwargs)
        if found:
            self.unwritten.update(map(_storage, tensors(made)))
            if func._schema.is_mutable:
                self.unwritten.update(map(_storage, tensors((args, kwargs))))
        return made

    # Not in the class's body: there torch wraps it in something that imports all of Dynamo.
    Watch.__torch_dispatch__ = dispatch

    def harmless(func: Any, found: list[Any], args: Any, kwargs: Any) -> bool:
        name = func._schema.name.partition("::")
        if name[0] != "aten":
            return False
        if func.is_view or torch.Tag.pointwise in func.tags:
            return True
        if any(not tensor.is_floating_point() for tensor in found):
            return False
        if name[2] in _COPIES:
            return _stays(name[2], args, kwargs)
        reduced = torch.Tag.reduction in func.tags and torch.Tag.data_dependent_output not in (
            func.tags
        )
        if str(func) == "aten.bernoulli_.float":  # by a number; by a tensor it checks that one
            return True
        return reduced or name[2] in _HARMLESS or name[2].startswith("_foreach_")

    def _stays(name: str, args: Any, kwargs: Any) -> bool:
        """On the device, and a number of its kind."""
        if name == "_to_copy":
            to = kwargs.get("device") or args[0].device
            kind = kwargs.get("dtype") or args[0].dtype
            same_place = torch.device(to).type == args[0].device.type
        else:
            into, source = args[:2]
            same_place, kind = into.device.type == source.device.type, into.dtype
        return bool(same_place and kind.is_floating_point)

    return Watch()


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


Returned = Literal["dropped", "used", "kept"]

# Between a launch and whoever asked for it.
_BETWEEN = frozenset(("whet", "triton", "torch"))


def returned(tuner: Any) -> Returned:
    """Asked while a call of the kernel `tuner` is under way: what its caller does with the result.

    Most callers drop it. One that calls `run` in place of `kernel[grid]` is a wrapper, such as
    FlagGems's `LibEntry`: it keeps what it got for all later calls, which never come here.
    """
    below, frame = sys._getframe(1), sys._getframe(1).f_back
    while frame is not None and _is_between(frame, tuner):
        below, frame = frame, frame.f_back
    if frame is None:
        return "dropped"
    if below.f_code.co_name == "run":
        return "kept"
    return "dropped" if _drops(frame.f_code, frame.f_lasti) else "used"


def _is_between(frame: FrameType, tuner: Any) -> bool:
    """Also where it is a method of the kernel's own class: a subclass may have a `run`."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in _BETWEEN or any(
        getattr(vars(kind).get(frame.f_code.co_name), "__code__", None) is frame.f_code
        for kind in type(tuner).__mro__
    )


def _drops(code: CodeType, place: int) -> bool:
    """Whether the result of the call at this place of the byte code is thrown away."""
    after = (one.opname for one in dis.get_instructions(code) if one.offset > place)
    return next(after, "") == "POP_TOP"
