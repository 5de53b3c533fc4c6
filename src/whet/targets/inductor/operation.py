"""An operation that Inductor can compute in several ways, as a target of the engine."""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.core.status import Status
from whet.measure.bench.protocol import Verdict
from whet.targets.inductor.target import InductorTarget, on_current_stream

# How a choice is computed; whatever it is beside is a number of a template.
KERNEL = "kernel"

# Operations whose two last operands are matrices; their sizes have names.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "scaled_mm", "int_mm", "packed_linear", "linear")

_PAIR = re.compile(r"(\w+)=('[^']*'|\"[^\"]*\"|[^,]+)")
_COUNTER = re.compile(r"_\d+$")

# How far elements may be off, in shares of the results' root mean square: one element, and all in
# the mean. So many roundings of the result, and of what sums are kept in so many for each term, by
# the root of their number. Operands are random, so that no true result stands out.
_ONE, _ALL = 16, 3
_SUMS = 8


class LeftAlone(Exception):
    """Why Inductor decides by itself."""


class Operation:
    """One question of Inductor's: `op` on `inputs`, and which of these `choices` is the fastest.

    A choice of a class that is not known here leaves the whole question to Inductor. `configs` are
    in Inductor's order but for a library's kernels, which come first: ties are theirs.
    """

    def __init__(self, op: str, inputs: str, choices: Sequence[Any]) -> None:
        self.op, self.inputs = op, inputs
        self.by_config: dict[Config, Any] = {}
        for choice in sorted(choices, key=lambda one: not is_extern(one)):
            config = config_of(choice)
            if config in self.by_config:  # alike but for what has no name
                config = Config({**config, "code": str(choice.hash_key())[-8:]})
            self.by_config.setdefault(config, choice)

    @property
    def configs(self) -> list[Config]:
        return list(self.by_config)

    @cached_property
    def layout(self) -> Any:
        return next(iter(self.by_config.values())).layout

    @cached_property
    def gpu(self) -> int | None:
        """Its number; None is the CPU."""
        where = self.layout.device
        return (where.index or 0) if where.type == "cuda" else None

    @cached_property
    def key(self) -> dict[str, Any]:
        operands = [_Operand(*one) for one in _read(self.inputs)]
        torch = sys.modules["torch"]
        found: dict[str, Any] = {}
        matrices = [one.sizes for one in operands if len(one.sizes) >= 2]
        if self.op in _PRODUCTS and len(matrices) >= 2:
            a, b = matrices[0], matrices[-1]
            k = a[-1]
            found = {"M": a[-2], "N": b[-1] if b[-2] == k else b[-2], "K": k}
            if len(a) > 2:
                found["batch"] = math.prod(a[:-2])
        found["inputs"] = ", ".join(one.text for one in operands)
        found["output"] = _Operand.of(self.layout).text
        if any(one.dtype == "float32" for one in operands):
            found["precision"] = torch.get_float32_matmul_precision()
        if self.gpu is None:
            found["threads"] = torch.get_num_threads()
        return found


class _Operand:
    def __init__(self, dtype: str, sizes: Sequence[Any], strides: Sequence[Any], offset: Any = 0):
        self.dtype = dtype.removeprefix("torch.")
        self.sizes, self._strides, self._offset = list(sizes), list(strides), offset

    @classmethod
    def of(cls, layout: Any) -> _Operand:
        sizes = [_number(one) for one in layout.size]
        return cls(str(layout.dtype), sizes, [_number(one) for one in layout.stride])

    @property
    def text(self) -> str:
        text = f"{self.dtype}{self.sizes}"
        dense = [math.prod(self.sizes[at + 1 :]) for at in range(len(self.sizes))]
        if self._strides != dense:
            text += f" by {self._strides}"
        return f"{text} from {self._offset}" if self._offset else text


def _number(size: Any) -> Any:
    """Sizes of a graph with symbols are these symbols."""
    try:
        return int(size)
    except TypeError:
        return str(size)


def _read(inputs: str) -> list[tuple[str, list[Any], list[Any], Any]]:
    """Inductor's own key of the operands: for each its device, dtype, sizes, strides, offset."""
    try:
        listed = ast.literal_eval(inputs)
        found = []
        for _, dtype, *numbers in listed:
            rank = (len(numbers) - 1) // 2
            found.append((dtype, numbers[:rank], numbers[rank : 2 * rank], numbers[2 * rank]))
    except (ValueError, SyntaxError, TypeError, IndexError):
        raise LeftAlone(f"its operands are not written as expected: {inputs[:80]}") from None
    return found


def is_extern(choice: Any) -> bool:
    from torch._inductor.select_algorithm import ExternKernelCaller

    return isinstance(choice, ExternKernelCaller)


def _wrapper() -> Any:
    from torch._inductor.select_algorithm import DataProcessorChoiceCallerWrapper

    return DataProcessorChoiceCallerWrapper


def config_of(choice: Any) -> Config:
    """What a choice is, the same in every process: a template's name ends with a counter."""
    if is_extern(choice):
        return Config({KERNEL: str(choice.name)})
    if isinstance(choice, _wrapper()):
        choice = choice._wrapped
    kind = type(choice).__name__
    name = _COUNTER.sub("", str(choice.name))
    if kind == "TritonTemplateCaller":
        numbers = {n: _value(text) for n, text in _PAIR.findall(choice.description or "")}
        return Config({KERNEL: name, **numbers})
    if kind == "CppTemplateCaller":
        return Config({KERNEL: name})
    raise LeftAlone(f"one of its choices is a {kind}")


def _value(text: str) -> Value:
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()
    return found if isinstance(found, bool | int | float | str) else text.strip()


class OperationTarget(InductorTarget):
    """Timed in this process, on the operands that Inductor made for it: `tensors`, which are not
    there where it is only looked up. Templates of Triton's were built by Inductor's own pool before
    that; others are built as they are loaded."""

    def __init__(self, operation: Operation, tensors: Any = None) -> None:
        super().__init__(f"inductor.{operation.op}", operation.gpu, Space(operation.configs))
        self.operation = operation
        self.timed = tensors is not None
        self._tensors = tensors
        self._expected: Any = None

    @property
    def key(self) -> Mapping[str, Any]:
        return self.operation.key

    def load(self, config: Config, artifact: Any) -> LoadedChoice:
        return LoadedChoice(self.operation.by_config[config], self)

    def run_of(self, choice: Any) -> Run:
        inputs, out = self._tensors.get_benchmark_tensors(is_extern(choice)).unpack()
        out.zero_()
        if is_extern(choice):
            fn = choice.to_callable()
            into = {"out": out} if choice.has_out_variant else {}
            return Run(lambda: fn(*inputs, **into), lambda computed: computed, inputs)
        if isinstance(choice, _wrapper()):  # for operands that are packed otherwise
            inputs, packed = choice._preprocessor(tuple(inputs), out)
            launch = self._launch(choice.bmreq.make_run_fn(*inputs, out=packed))
            return Run(launch, lambda _: choice._postprocessor(packed), inputs)
        launch = self._launch(choice.bmreq.make_run_fn(*inputs, out=out))
        return Run(launch, lambda _: out, inputs)

    def _launch(self, made: Any) -> Callable[[], Any]:
        """A template of Triton's comes with the stream that was current when it was made."""
        if isinstance(made, partial) and "stream" in made.keywords:
            return on_current_stream(made, self.gpu)
        return cast("Callable[[], Any]", made)

    def expected(self) -> Any:
        """By the first that works, a library's where there is one."""
        if self._expected is None:
            problem: Exception | None = None
            for choice in self.operation.by_config.values():
                try:
                    self._expected = self.run_of(choice).result().clone()
                    break
                except Exception as error:
                    problem = error
            else:
                text = f"every choice failed: {type(problem).__name__}: {problem}"
                raise ConfigFailure(Status.RUN_ERROR, text) from problem
        return self._expected


@dataclass(frozen=True)
class Run:
    """`compute` is what is timed; `view` makes what everybody else would have returned out of what
    that returns. The `operands` must live as long: a launch knows only where they are."""

    compute: Callable[[], Any]
    view: Callable[[Any], Any]
    operands: Any

    def result(self) -> Any:
        return self.view(self.compute())


class LoadedChoice:
    """A choice on the operands: what a bench runs."""

    compares = True

    def __init__(self, choice: Any, target: OperationTarget) -> None:
        self._choice, self._target = choice, target
        self._run: Run | None = None
        self.facts: Mapping[str, Value] = {}

    def first_call(self) -> None:
        """A template of C++ is compiled here, where it is not in Inductor's cache."""
        self._run = self._target.run_of(self._choice)
        self._run.compute()
        self._target.wait()

    def repeat(self, n: int) -> None:
        assert self._run is not None
        compute = self._run.compute
        for _ in range(n):
            compute()

    def check(self) -> Verdict:
        expected = self._target.expected()
        got = self._target.run_of(self._choice).result()
        self._target.wait()
        return judged(got, expected, int(self._target.operation.key.get("K", 1024)))

    def close(self) -> None:
        self._run = None
        clean = getattr(self._choice.bmreq, "cleanup_run_fn", None)
        if clean is not None:
            clean()


def judged(got: Any, expected: Any, terms: int) -> Verdict:
    """Against a library's result; each element is a sum of so many terms."""
    torch = sys.modules["torch"]
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return Verdict(False, f"got {_outline(got)}, expected {_outline(expected)}")
    if not expected.dtype.is_floating_point:
        if torch.equal(got, expected):
            return Verdict(True)
        return Verdict(False, f"{int((got != expected).sum())} of {got.numel()} elements differ")
    wide, right = got.double(), expected.double()
    if not torch.equal(wide.isfinite(), right.isfinite()):
        return Verdict(False, "it has NaN or infinity elsewhere than the library's kernel")
    off = (wide - right).nan_to_num(0.0, 0.0, 0.0).abs()
    scale = float(right.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
    rounding = torch.finfo(got.dtype).eps
    if torch.get_float32_matmul_precision() != "highest":
        rounding = max(rounding, 2.0**-10)
    kept = 2.0**-52 if got.dtype == torch.float64 else 2.0**-23
    sums = _SUMS * math.sqrt(terms) * kept
    limit, mean = scale * (_ONE * rounding + sums), scale * (_ALL * rounding + sums)
    worst = float(off.max()) if off.numel() else 0.0
    if worst <= limit and float(off.square().mean().sqrt()) <= mean:
        return Verdict(True)
    wrong = int((off > mean).sum())
    return Verdict(
        False,
        f"{wrong} of {got.numel()} elements differ from the library's kernel, by up to "
        f"{worst:.3g} where results are {scale:.3g} in the mean",
    )


def _outline(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
