"""What the captured graphs show: wider types, copies to the host, inputs changed in place."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

from whet.doctor import dynamo
from whet.doctor.finding import Finding, Line, Remedy
from whet.doctor.subject import Patient, device_of

_HOST_METHODS = ("cpu", "tolist", "numpy", "item")
_HOST_WORD = re.compile(r"""["']cpu["']""")
_IN_PLACE_FUNCTIONS = (
    operator.setitem,
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
)


def graph_findings(subject: Patient, graphs: Sequence[Any]) -> list[Finding]:
    return [
        *_upcasts(subject, graphs),
        *_host_copies(subject, graphs),
        *_input_mutations(subject, graphs),
    ]


def _nodes(graphs: Sequence[Any]) -> Iterator[Any]:
    for graph in graphs:
        yield from graph.graph.nodes


def _value(node: Any) -> Any:
    """The tensor that tracing saw; None for anything else."""
    value = getattr(node, "meta", {}).get("example_value")
    return value if hasattr(value, "dtype") and hasattr(value, "shape") else None


def _place(node: Any) -> Line:
    return dynamo.place_in(node.meta.get("stack_trace") or node.stack_trace or "")


def _upcasts(subject: Patient, graphs: Sequence[Any]) -> list[Finding]:
    places: dict[Line, str] = {}
    for node in _nodes(graphs):
        said = _upcast(subject, node)
        if said:
            places.setdefault(_place(node), said)
    if not places:
        return []
    remedy = _cast_remedy(subject)
    return [Finding("upcast", said, place, (remedy,)) for place, said in places.items()]


def _upcast(subject: Patient, node: Any) -> str:
    """Two floating types that meet, or float64 that nobody gave. A cast to float32 inside a model
    of half precision is what careful authors write, so it is none."""
    import torch

    out = _value(node)
    if out is None or not out.dtype.is_floating_point or node.op == "placeholder":
        return ""
    inputs = [value for value in map(_value, node.all_input_nodes) if value is not None]
    types = {
        value.dtype for value in inputs if value.dtype.is_floating_point and len(value.shape) > 0
    }
    narrow = min(types, key=lambda dtype: dtype.itemsize, default=out.dtype)
    name = getattr(node.target, "__name__", str(node.target))
    if len(types) > 1 and out.dtype.itemsize > narrow.itemsize:
        named = " and ".join(sorted(_short(dtype) for dtype in types))
        return f"{name} of {named} computes in {_short(out.dtype)}"
    invented = out.dtype == torch.float64 and types and torch.float64 not in types
    if invented and torch.float64 not in _given(subject):
        return f"{name} turns {_short(narrow)} into float64"
    return ""


def _given(subject: Patient) -> set[Any]:
    return {getattr(value, "dtype", None) for value in subject.calls[0].named.values()}


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _cast_remedy(subject: Patient) -> Remedy:
    """Parameters and buffers in the input's own type, where the model can be cast."""
    floating = [
        value.dtype
        for value in subject.calls[0].named.values()
        if getattr(getattr(value, "dtype", None), "is_floating_point", False)
    ]
    general = Remedy("cast the wider operand before the operation, as in y.to(x.dtype)")
    if not floating or not hasattr(subject.model, "to"):
        return general
    call = subject.calls[0]
    model, _ = dynamo.fresh(subject, call)
    if model is subject.model:
        return general
    cast = Patient(subject.name, model.to(floating[0]), subject.calls, subject.file)  # type: ignore[attr-defined]
    text = f"cast the model's parameters and buffers: model.to({floating[0]})"
    try:
        left = [n for n in _nodes(dynamo.capture(cast, call).graphs) if _upcast(cast, n)]
    except Exception:
        return general
    if left:
        return general
    return Remedy(text, "tried: no operation computes in a wider type", works=True)


def _host_copies(subject: Patient, graphs: Sequence[Any]) -> list[Finding]:
    found: dict[Line, Finding] = {}
    on_gpu = device_of(subject) is not None
    for node in _nodes(graphs):
        if node.op != "call_method":
            continue
        place = _place(node)
        if not (_leaves_the_gpu(node) if on_gpu else _asks_for_the_host(node, place)):
            continue
        evidence = (
            f"'{node.target}' copies to the host; on a GPU each call waits for the device there, "
            "and CUDA graphs are not used"
        )
        remedy = Remedy("keep the value on the device until the model has returned")
        found.setdefault(place, Finding("host-copy", evidence, place, (remedy,)))
    return list(found.values())


def _leaves_the_gpu(node: Any) -> bool:
    """What is on the host already is not copied there."""
    source = _value(node.args[0]) if node.args else None
    if source is not None and source.device.type == "cpu":
        return False
    return node.target in _HOST_METHODS or _goes_to_the_host(node)


def _asks_for_the_host(node: Any, place: Line) -> bool:
    """On a CPU all is on the host, and `y.to(x.device)` is captured like `y.to("cpu")`: only what
    is written tells which one it is."""
    if node.target in _HOST_METHODS:
        return True
    return _goes_to_the_host(node) and _HOST_WORD.search(place.code) is not None


def _goes_to_the_host(node: Any) -> bool:
    given = [*node.args[1:], *node.kwargs.values()]
    return node.target == "to" and any(str(value) == "cpu" for value in given)


def _input_mutations(subject: Patient, graphs: Sequence[Any]) -> list[Finding]:
    changed = _changed_inputs(subject)
    if not changed:
        return []
    place = next((_place(n) for n in _nodes(graphs) if _writes_to(n, graphs)), subject.place)
    named = " and ".join(f"'{name}'" for name in changed)
    evidence = (
        f"a call changes its input {named} in place; the next call with it computes something "
        "else, and CUDA graphs are not used"
    )
    remedy = Remedy("work on a copy: x = x.clone() before the first in-place operation")
    return [Finding("input-mutation", evidence, place, (remedy,))]


def _changed_inputs(subject: Patient) -> list[str]:
    model, call = dynamo.fresh(subject, subject.calls[0])
    given = subject.names(call).items()
    tensors = {name: value for name, value in given if hasattr(value, "_version")}
    before = {name: value._version for name, value in tensors.items()}
    with dynamo.quiet(), subject.gradients():
        model(*call.args, **call.kwargs)
    return [name for name, value in tensors.items() if value._version != before[name]]


def _writes_to(node: Any, graphs: Sequence[Any]) -> bool:
    """Whether it writes to memory of one of its graph's inputs, also through a view."""
    in_place = node.target in _IN_PLACE_FUNCTIONS or (
        node.op == "call_method" and node.target.endswith("_") and not node.target.endswith("__")
    )
    if not in_place or not node.args:
        return False
    written = _storage(node.args[0])
    inputs = [other for other in node.graph.nodes if other.op == "placeholder"]
    return written is not None and any(_storage(other) == written for other in inputs)


def _storage(node: Any) -> Any:
    value = _value(node)
    try:
        return None if value is None else value.untyped_storage()._cdata
    except (AttributeError, RuntimeError, NotImplementedError):
        return None
