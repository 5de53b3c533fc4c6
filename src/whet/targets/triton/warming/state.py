"""What a step changes, and how it is put back: parameters, gradients, optimizers, generators."""

from __future__ import annotations

import dis
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

# How far a step's own objects are followed: a trainer, its model and optimizer, a list of these.
DEPTH = 4

# Copies stay on the device while they take no more than this part of what is free there.
SHARE = 0.25

_PLAIN = (bool, int, float, complex, str, bytes, type(None), range, type, types.ModuleType)

_METHODS = (types.FunctionType, classmethod, staticmethod)


class KeptState:
    """Found through the step's closure, the names it uses, its object and its arguments.

    `cannot` says what a call of the step may change for good, in words for a person.
    """

    def __init__(self, step: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> None:
        self.cannot: list[str] = []
        self._undo: list[Callable[[], None]] = []
        self._seen: set[int] = set()
        self._alive: list[Any] = []
        self._torch: Any = sys.modules.get("torch")
        # Functions of other modules are a library's, whose names are nobody's state.
        self._globals = getattr(_function(step), "__globals__", None)
        self._keep_generators()
        for name, value in _reached(step):
            self._keep(name, value, DEPTH)
        for place, value in enumerate(args):
            self._keep(f"argument {place}", value, DEPTH)
        for name, value in kwargs.items():
            self._keep(name, value, DEPTH)
        self._keep_bindings(step)

    def restore(self) -> None:
        for undo in reversed(self._undo):
            undo()

    def _keep_generators(self) -> None:
        python = random.getstate()
        self._undo.append(lambda: random.setstate(python))
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            state = numpy.random.get_state()
            self._undo.append(lambda: numpy.random.set_state(state))
        torch = self._torch
        if torch is None:
            return
        cpu = torch.get_rng_state()
        self._undo.append(lambda: torch.set_rng_state(cpu))
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            gpus = torch.cuda.get_rng_state_all()
            self._undo.append(lambda: torch.cuda.set_rng_state_all(gpus))

    def _keep(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, type):
            self._keep_class(value, depth)
        if isinstance(value, _PLAIN) or id(value) in self._seen or depth == 0:
            return
        self._seen.add(id(value))
        self._alive.append(value)  # or another object could get its id
        torch = self._torch
        if torch is not None and self._keep_torchs(name, value, depth):
            return
        if isinstance(value, dict):
            self._keep_items(value)
            for key, item in list(value.items()):
                self._keep(f"{name}[{key!r}]", item, depth - 1)
        elif isinstance(value, list | tuple | set | frozenset):
            for place, item in enumerate(value):
                self._keep(f"{name}[{place}]", item, depth - 1)
        elif hasattr(value, "__next__"):
            self.cannot.append(f"'{name}' is an iterator, which the step may advance")
        elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
            if getattr(_function(value), "__globals__", None) is self._globals:
                for inner, item in _reached(value):
                    self._keep(inner, item, depth - 1)
        elif type(value).__module__ not in ("builtins", "triton.runtime.jit") and not _autotunes(
            value
        ):
            self._keep_object(name, value, depth)

    def _keep_class(self, kind: type, depth: int) -> None:
        """What the methods of a class beside the step reach: an autograd function's, a model's."""
        if self._globals is None or depth == 0:
            return
        for one in kind.__mro__:
            if one.__module__ != self._globals.get("__name__") or id(one) in self._seen:
                continue
            self._seen.add(id(one))
            for name, value in list(vars(one).items()):
                if isinstance(value, _METHODS):
                    self._keep(name, getattr(value, "__func__", value), depth)
                elif not name.startswith("__"):
                    self._keep(f"{one.__name__}.{name}", value, depth - 1)

    def _keep_torchs(self, name: str, value: Any, depth: int) -> bool:
        torch = self._torch
        if isinstance(value, torch.Tensor):
            self._keep_tensor(name, value)
        elif isinstance(value, torch.nn.Module):
            self._keep_module(name, value)
        elif isinstance(value, torch.optim.Optimizer):
            self._keep_optimizer(name, value)
        elif isinstance(value, torch.Generator):
            state = value.get_state()
            self._undo.append(lambda: value.set_state(state) and None)
        elif isinstance(value, torch.dtype | torch.device | torch.Size):
            pass
        else:
            return False
        return True

    def _keep_tensor(self, name: str, tensor: Any) -> None:
        torch, grad = self._torch, tensor.grad if tensor.is_leaf else None
        try:
            copy = self._copied(tensor)
            grad_copy = None if grad is None else self._copied(grad)
        except Exception as error:  # no memory, or a tensor that cannot be copied
            self.cannot.append(f"'{name}' cannot be copied ({type(error).__name__})")
            return
        leaf = tensor.is_leaf

        def undo() -> None:
            with torch.no_grad():
                tensor.detach().copy_(copy)
                if grad is not None:
                    grad.copy_(grad_copy)
            if leaf and tensor.grad is not grad:
                tensor.grad = grad

        self._undo.append(undo)

    def _copied(self, tensor: Any) -> Any:
        source = tensor.detach()
        if source.device.type != "cuda":
            return source.clone()
        free, _ = self._torch.cuda.mem_get_info(source.device)
        if source.numel() * source.element_size() < SHARE * free:
            return source.clone()
        return source.cpu()

    def _keep_module(self, name: str, module: Any) -> None:
        for inner, tensor in (*module.named_parameters(), *module.named_buffers()):
            if id(tensor) not in self._seen:
                self._seen.add(id(tensor))
                self._keep_tensor(f"{name}.{inner}", tensor)
        modes = [(one, one.training) for one in module.modules()]

        def undo() -> None:
            for one, training in modes:
                one.training = training

        self._undo.append(undo)
        for one in module.modules():
            self._seen.add(id(one))
            self._keep_class(type(one), DEPTH)
            plain = {n: v for n, v in vars(one).items() if not n.startswith("_")}
            self._keep_attributes(one, plain)

    def _keep_optimizer(self, name: str, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for place, parameter in enumerate(group["params"]):
                self._keep(f"{name}.params[{place}]", parameter, 1)
        groups = [{k: v for k, v in group.items() if k != "params"} for group in _groups(optimizer)]
        entries = {owner: dict(entry) for owner, entry in optimizer.state.items()}
        for entry in entries.values():
            for key, value in entry.items():
                self._keep(f"{name}.state[{key!r}]", value, 2)

        def undo() -> None:
            optimizer.state.clear()
            optimizer.state.update((owner, dict(entry)) for owner, entry in entries.items())
            for group, before in zip(optimizer.param_groups, groups, strict=False):
                group.update(before)

        self._undo.append(undo)

    def _keep_object(self, name: str, value: Any, depth: int) -> None:
        """Schedulers and scalers say themselves what their state is."""
        save, load = getattr(value, "state_dict", None), getattr(value, "load_state_dict", None)
        if callable(save) and callable(load):
            try:
                state = deepcopy(save())
            except Exception as error:
                self.cannot.append(f"the state of '{name}' cannot be copied ({error})")
                return
            self._undo.append(lambda: load(deepcopy(state)) and None)
            return
        self._keep_class(type(value), depth)
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._keep_attributes(value, dict(attributes))
            for inner, item in list(attributes.items()):
                self._keep(f"{name}.{inner}", item, depth - 1)

    def _keep_attributes(self, value: Any, attributes: dict[str, Any]) -> None:
        """Counters and the like: which object each name means, not what is in that."""
        plain = {n: v for n, v in attributes.items() if isinstance(v, _PLAIN)}

        def undo() -> None:
            for name, before in plain.items():
                if vars(value).get(name, value) is not before:
                    setattr(value, name, before)

        if plain:
            self._undo.append(undo)

    def _keep_items(self, value: dict[Any, Any]) -> None:
        before = {key: item for key, item in value.items() if isinstance(item, _PLAIN)}

        def undo() -> None:
            for key, item in before.items():
                if value.get(key, value) is not item:
                    value[key] = item

        if before and value is not sys.modules:
            self._undo.append(undo)

    def _keep_bindings(self, step: Callable[..., Any]) -> None:
        """Names that the step assigns outside of itself."""
        function = _function(step)
        if function is None:
            return
        for name in _assigned(function.__code__, "STORE_GLOBAL"):
            if name in function.__globals__:
                self._undo.append(
                    functools.partial(
                        function.__globals__.__setitem__, name, function.__globals__[name]
                    )
                )
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
        for name in _assigned(function.__code__, "STORE_DEREF"):
            cell = cells.get(name)
            if cell is not None and _filled(cell):
                undo = functools.partial(setattr, cell, "cell_contents", cell.cell_contents)
                self._undo.append(undo)


def _groups(optimizer: Any) -> list[dict[str, Any]]:
    return [dict(group) for group in optimizer.param_groups]


def _autotunes(value: Any) -> bool:
    """Kernels are tuned, not put back."""
    return any(kind.__module__.startswith("triton.") for kind in type(value).__mro__)


def _function(step: Any) -> Any:
    while not isinstance(step, types.FunctionType):
        if isinstance(step, functools.partial):
            step = step.func
        elif isinstance(step, types.MethodType):
            step = step.__func__
        elif isinstance(vars(type(step)).get("__call__"), types.FunctionType):
            step = type(step).__call__
        else:
            return None
    return step


def _reached(step: Any) -> Iterator[tuple[str, Any]]:
    """What a function can reach by its own means: its object, its closure, names of its module."""
    if isinstance(step, functools.partial):
        yield from ((f"argument {place}", value) for place, value in enumerate(step.args))
        yield from step.keywords.items()
        yield from _reached(step.func)
    elif isinstance(step, types.MethodType):
        yield "self", step.__self__
        yield from _reached(step.__func__)
    elif isinstance(step, types.FunctionType):
        for name, cell in zip(step.__code__.co_freevars, step.__closure__ or (), strict=False):
            if _filled(cell):
                yield name, cell.cell_contents
        for name in sorted(_names(step.__code__)):
            if name in step.__globals__:
                yield name, step.__globals__[name]
        yield from ((f"default {n}", value) for n, value in enumerate(step.__defaults__ or ()))
    else:
        yield type(step).__name__, step


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _names(code: types.CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return set(code.co_names).union(*(_names(one) for one in inner))


def _assigned(code: types.CodeType, how: str) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    own = {str(one.argval) for one in dis.get_instructions(code) if one.opname == how}
    return own.union(*(_assigned(one, how) for one in inner))
