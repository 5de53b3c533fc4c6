"""A payload from a torch module: exported by torch, and made linalg by torch-mlir.

Weights become inputs of the exported program rather than constants, so that the text, which tells
one workload from another, does not depend on them.
"""

from __future__ import annotations

import contextlib
import inspect
import keyword
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.errors import UsageError, install_extra
from whet.targets.schedule.bindings import bindings, torch_importer
from whet.targets.schedule.payload_file import payload_of
from whet.targets.schedule.payloads import Payload, numpy_dtype
from whet.targets.schedule.script import operations

# Results that nobody reads go (softmax carries the places of its maxima), and what made them.
_CLEANING = "builtin.module(canonicalize,linalg-fuse-elementwise-ops,canonicalize,cse)"


def torch_payload(module: Any, example_inputs: Any) -> Payload:
    """`module` is a torch module or a function of tensors, `example_inputs` a tensor or a tuple of
    them, which are the inputs of every measured call. Torch computes the reference."""
    label = _name(module)
    if not callable(module):
        raise UsageError(
            f"whet.schedule takes a payload, or a torch module or function with example inputs; "
            f"{label} is neither"
        )
    try:
        import torch
    except ImportError:
        raise UsageError(
            f"{label} needs torch, unless it is a payload: pip install torch, and "
            f"{install_extra('mlir')}"
        ) from None
    fx = torch_importer()
    if example_inputs is None:
        raise UsageError(f"{label} needs example inputs: whet.schedule({label}, (tensor, …))")
    inputs = example_inputs if isinstance(example_inputs, tuple | list) else (example_inputs,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program, lifted = _exported(torch, fx, _as_module(torch, module), tuple(inputs), label)
        text = _linalg(fx, lifted.program, label)
    mlir = bindings()
    with mlir.context(), mlir.ir.Location.unknown():
        try:
            parsed = mlir.ir.Module.parse(text)
        except mlir.ir.MLIRError as error:
            foreign = re.search(r"for custom op '([\w.]+)'", str(error))
            said = f"{foreign[1]}, which is no linalg" if foreign else _line(error)
            raise UsageError(f"torch-mlir makes of {label} {said}") from None
        for one in operations(mlir, parsed):
            if one.name == "cf.assert":  # of what torch itself does not check
                one.erase()
        mlir.pass_manager.parse(_CLEANING).run(parsed.operation)
        [function] = parsed.body.operations
        taken, results = len(function.type.inputs), len(function.type.results)
        if taken != len(lifted.arrays):
            raise UsageError(f"{label} takes something else than tensors; wrap it in a function")
        last = ["out"] if results == 1 else [f"out{at}" for at in range(results)]
        names = (*lifted.arrays, *last)
        return payload_of(
            mlir,
            parsed,
            function,
            label,
            _Reference(program, lifted.order),
            names=names,
            given=lifted.arrays,
            weights=lifted.weights,
        )


def _name(module: Any) -> str:
    named = getattr(module, "__name__", None) or type(module).__name__
    return re.sub(r"\W", "_", str(named)).strip("_") or "program"


def _as_module(torch: Any, given: Any) -> Any:
    if isinstance(given, torch.nn.Module):
        return given

    class Wrapped(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *x: Any) -> Any:
            return given(*x)

    with contextlib.suppress(TypeError, ValueError):  # so that arrays are called as parameters are
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        parameters = inspect.signature(given).parameters.values()
        signature = inspect.Signature([own, *parameters])
        Wrapped.forward.__signature__ = signature  # type: ignore[attr-defined]
    return Wrapped()


@dataclass(frozen=True)
class _Lifted:
    """`program` takes `arrays`, in that order, `weights` among them. `order` is what the program as
    torch exported it takes: the name of an array, or a value."""

    program: Any
    arrays: Mapping[str, Any]
    weights: Collection[str]
    order: Sequence[Any]


def _exported(
    torch: Any, fx: Any, module: Any, inputs: tuple[Any, ...], label: str
) -> tuple[Any, _Lifted]:
    try:
        with torch.no_grad():
            program = torch.export.export(module, inputs)
            lower = program.run_decompositions(fx.get_decomposition_table())
    except Exception as error:
        raise UsageError(f"torch cannot export {label}: {_line(error)}") from None
    for spec in lower.graph_signature.output_specs:
        if "MUTATION" in spec.kind.name:
            remedy = "; call .eval() on it first" if module.training else ""
            raise UsageError(f"{label} changes its own {spec.target} as it runs{remedy}")
    arrays, names, weights = _lift(torch, lower, inputs)
    order = _order(torch, program, inputs, names)
    return program.graph_module, _Lifted(lower, arrays, weights, order)


def _lift(
    torch: Any, program: Any, inputs: Any
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Makes inputs of weights and of constants that are no single numbers, in place; what nothing
    reads goes. The arrays by their new names, these by torch's, and which are weights."""
    kinds = torch.export.graph_signature.InputKind
    leaves = iter(torch.utils._pytree.tree_leaves(inputs))
    nodes = {node.name: node for node in program.graph.nodes}
    arrays: dict[str, Any] = {}
    names: dict[str, str] = {}
    weights: list[str] = []
    signature = program.graph_signature
    for spec in list(signature.input_specs):
        if spec.kind == kinds.USER_INPUT:
            value, wanted = next(leaves), spec.arg.name
            if not isinstance(value, torch.Tensor):  # torch has taken it for a constant
                program.graph.erase_node(nodes[spec.arg.name])
                signature.input_specs.remove(spec)
                continue
        else:
            held = program.constants if spec.target in program.constants else program.state_dict
            value, wanted = held[spec.target], spec.target.replace(".", "_")
            if not nodes[spec.arg.name].users:
                program.graph.erase_node(nodes[spec.arg.name])
                signature.input_specs.remove(spec)
                continue
            if spec.kind == kinds.CONSTANT_TENSOR and value.numel() == 1:
                continue
        if not wanted.isidentifier() or keyword.iskeyword(wanted) or wanted in arrays:
            wanted = spec.arg.name
        if spec.target is not None:
            weights.append(wanted)
            spec.kind, spec.target, spec.persistent = kinds.USER_INPUT, None, None
        names[spec.arg.name] = wanted
        arrays[wanted] = _to_numpy(torch, value)
    return arrays, names, weights


def _order(torch: Any, program: Any, inputs: Any, names: Mapping[str, str]) -> list[Any]:
    leaves = iter(torch.utils._pytree.tree_leaves(inputs))
    order: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            value = next(leaves)
        else:
            held = program.constants if spec.target in program.constants else program.state_dict
            value = held[spec.target]
        order.append(names.get(spec.arg.name, value))
    return order


def _linalg(fx: Any, program: Any, label: str) -> str:
    try:
        return str(
            fx.export_and_import(
                program, output_type="linalg-on-tensors", func_name=label, decomposition_table={}
            )
        )
    except Exception as error:
        raise UsageError(f"torch-mlir cannot make linalg of {label}: {_line(error)}") from None


def _line(error: Exception) -> str:
    """What is wrong, without the pages around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if "error:" in line), lines[0] if lines else "")
    return said.partition("error: ")[2] or said or type(error).__name__


@dataclass(frozen=True)
class _Reference:
    """The program as torch exported it, before anything is decomposed."""

    graph: Any
    order: Sequence[Any]

    def __call__(self, **arrays: Any) -> Any:
        import torch

        with torch.no_grad():
            given = [
                _to_torch(torch, arrays[one]) if isinstance(one, str) else one for one in self.order
            ]
            return tuple(_to_numpy(torch, one) for one in self.graph(*given))


def _to_numpy(torch: Any, tensor: Any) -> Any:
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
    return tensor.numpy()


def _to_torch(torch: Any, array: Any) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
