"""What tracing the model shows: graph breaks, recompilations, wider types, copies to the host."""

from __future__ import annotations

import inspect
import operator
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.doctor import dynamo
from whet.doctor.dynamo import Break, Captured, Recompile
from whet.doctor.finding import Finding, Line, Remedy
from whet.doctor.subject import ExaminedModel, Inputs, device_of

_REWRITES = {
    "Data-dependent branching": "compute both sides and select with torch.where(condition, a, b), "
    "or use torch.cond(condition, true_fn, false_fn, operands)",
    "Attempted to call function marked as skipped": "move the call out of the model, or wrap it in "
    "a custom operator (torch.library.custom_op)",
    "Tensor.tolist() with non-integer tensor": "keep the values in a tensor; copying them to the "
    "host waits for the device as well",
}

_HINTED_SETTING = re.compile(r"torch\._dynamo\.(?:config\.)?(\w+) ?= ?True")

# What torch says of nearly every break and helps nobody.
_IDLE_HINTS = (
    "Please report an issue to PyTorch",
    "It may be possible to write Dynamo tracing",
    "may have been caused by an earlier graph break",
)

# Leaving a layer out breaks the graph once.
WORTH_FROM = 2

REPEATS = 4

# By how many rows the probes grow the batch. Torch compiles the second size with a symbolic one,
# so that a model without a disease is compiled twice over all of them.
GROWTHS = (0, 1, 2, 3)

_SETTING = re.compile(r"torch\._dynamo\.config\.(\w+) = True")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_SIZE = "size mismatch at index"
_LENGTH = re.compile(r"len\(([\w.]+)\) == \d+")

# What was compiled again, and how many more layers share each frame's code.
Found = tuple[tuple[Recompile, ...], Counter[str]]

_HOST_METHODS = ("cpu", "tolist", "numpy", "item")
_HOST_WORD = re.compile(r"""["']cpu["']""")
_IN_PLACE_FUNCTIONS = (
    operator.setitem,
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
)


@dataclass(frozen=True)
class _Knob:
    """A setting of `torch._dynamo.config`, tried where a break mentions one of `words`."""

    text: str
    values: Mapping[str, Any]
    words: tuple[str, ...]

    def fits(self, one: Break) -> bool:
        said = f"{one.kind} {one.explanation} {' '.join(one.hints)}"
        return any(word in said for word in self.words)


_SETTINGS = (
    _Knob(
        "set torch._dynamo.config.capture_scalar_outputs = True",
        {"capture_scalar_outputs": True},
        ("capture_scalar_outputs",),
    ),
    _Knob(
        "set torch._dynamo.config.capture_dynamic_output_shape_ops = True",
        {"capture_dynamic_output_shape_ops": True},
        ("capture_dynamic_output_shape_ops",),
    ),
    _Knob(
        "torch._dynamo.config.reorderable_logging_functions.add(print); the text is then printed "
        "after the graph has run",
        {"reorderable_logging_functions": {print}},
        ("`print`",),
    ),
)


def break_findings(subject: ExaminedModel, captured: Captured) -> list[Finding]:
    """One finding for each line and kind of break."""
    grouped: dict[tuple[str, Line], list[Break]] = {}
    for one in captured.breaks:
        grouped.setdefault((one.kind, one.place), []).append(one)
    isolated = left_out_layers(subject, captured)
    findings = [
        _finding(subject, captured, same[0], place, len(same))
        for (_, place), same in grouped.items()
    ]
    return [
        replace(one, remedies=(*one.remedies, isolated[one.place]))
        if one.place in isolated
        else one
        for one in findings
    ]


def _finding(
    subject: ExaminedModel, captured: Captured, one: Break, place: Line, count: int
) -> Finding:
    knobs = [setting for setting in _SETTINGS if setting.fits(one)] + _hinted(one)
    tried = [_setting_tried(subject, setting, captured, one) for setting in knobs]
    helpful = [remedy for remedy in tried if remedy is not None]
    remedies = [*helpful, *_break_rewrites(one)]
    if not remedies:
        known = {name for setting in knobs for name in setting.values}
        useful = [
            hint for hint in one.hints if not any(idle in hint for idle in (*_IDLE_HINTS, *known))
        ]
        remedies = [Remedy(hint) for hint in useful[:2]]
    remedies = remedies or [Remedy("move the line out of the compiled model")]
    evidence = one.kind if not one.explanation else f"{one.kind}: {one.explanation}"
    name = "graph-break" if captured.graphs else "not-compiled"
    return Finding(name, evidence, place, tuple(remedies), one.code, count)


def _hinted(one: Break) -> list[_Knob]:
    """Settings in torch's own hints that are not among ours."""
    names = {name for hint in one.hints for name in _HINTED_SETTING.findall(hint)}
    ours = {name for setting in _SETTINGS for name in setting.values}
    return [
        _Knob(f"set torch._dynamo.config.{name} = True", {name: True}, ())
        for name in sorted(names - ours)
    ]


def _break_rewrites(one: Break) -> list[Remedy]:
    if "`print`" in one.explanation:
        return [Remedy("print only outside of the compiler: if not torch.compiler.is_compiling()")]
    if one.place.code.startswith("assert "):
        return [Remedy("check it on the device: torch._assert_async(condition, message)")]
    return [Remedy(_REWRITES[one.kind])] if one.kind in _REWRITES else []


def _setting_tried(
    subject: ExaminedModel, setting: _Knob, before: Captured, one: Break
) -> Remedy | None:
    """The model is traced again under the setting; None where that does not help."""
    try:
        after = dynamo.capture(subject, subject.calls[0], setting.values)
    except Exception:
        return None
    here = (one.kind, one.place)
    gone = all((other.kind, other.place) != here for other in after.breaks)
    if not gone or len(after.breaks) >= len(before.breaks):
        return None
    counts = f"{len(before.breaks)} → {len(after.breaks)} graph breaks"
    return Remedy(setting.text, f"tried: {counts}", works=True)


def left_out_layers(subject: ExaminedModel, captured: Captured) -> dict[Line, Remedy]:
    """For the breaks in one layer's own code: what came of compiling the model without it. Only
    where fewer breaks were left."""
    found: dict[Line, Remedy] = {}
    for name, places in _breaking_layers(subject, captured):
        remedy = _tried_without(subject, name, captured)
        if remedy is not None:
            found.update(dict.fromkeys(places, remedy))
    return found


def _breaking_layers(
    subject: ExaminedModel, captured: Captured
) -> Iterator[tuple[str, list[Line]]]:
    modules = getattr(subject.model, "named_modules", None)
    for name, layer in modules() if callable(modules) else ():
        if not name:
            continue
        file, first, last = _span(layer)
        places = [
            one.place
            for one in captured.breaks
            if one.place.file == file and first <= one.place.line <= last
        ]
        if len(places) >= WORTH_FROM:
            yield name, places


def _span(layer: Any) -> tuple[str, int, int]:
    """The lines of its forward."""
    try:
        lines, first = inspect.getsourcelines(type(layer).forward)
        file = inspect.getsourcefile(type(layer).forward) or ""
    except (OSError, TypeError):
        return "", 0, -1
    return file, first, first + len(lines) - 1


def _tried_without(subject: ExaminedModel, name: str, before: Captured) -> Remedy | None:
    import torch

    model, _ = dynamo.fresh(subject, subject.calls[0])
    if model is subject.model:
        return None
    layer = model.get_submodule(name)  # type: ignore[attr-defined]
    layer.forward = torch.compiler.disable(layer.forward)
    try:
        after = dynamo.capture(replace(subject, model=model), subject.calls[0])
    except Exception:
        return None
    if len(after.breaks) >= len(before.breaks):
        return None
    counts = f"{len(before.breaks)} → {len(after.breaks)} graph breaks"
    text = f"leave the layer '{name}' out: torch.compiler.disable on its forward"
    return Remedy(text, f"tried: {counts}", works=True)


def recompile_findings(subject: ExaminedModel) -> list[Finding]:
    same = [subject.calls[0]] * REPEATS
    found, _ = _compiled_again(subject, same)
    if found:
        return _findings(subject, same, found, f"{REPEATS} calls with the same inputs")
    if len(subject.calls) > 1:
        found, _ = _compiled_again(subject, subject.calls)
        return _findings(subject, subject.calls, found, f"the {len(subject.calls)} calls given")
    grown = _grown(subject)
    if not grown:
        return []
    found = _beyond_the_first(_compiled_again(subject, grown))
    return _findings(subject, grown, found, f"{len(grown)} calls with different batch sizes")


def _compiled_again(subject: ExaminedModel, calls: Sequence[Inputs], **more: Any) -> Found:
    """Without what the first call compiles: after a graph break, code that several layers share is
    compiled for each of them. That is no fault until torch gives up on the code."""
    import torch._dynamo.config as config

    most = int(getattr(config, "recompile_limit", 8))
    found = dynamo.recompiles(subject, calls, **more)
    layers = Counter(one.frame for one in found if one.call == 1)
    return tuple(one for one in found if one.call > 1 or layers[one.frame] >= most - 1), layers


def _beyond_the_first(found: Found) -> tuple[Recompile, ...]:
    """Those of parts of the model that are compiled a third time for the same layer."""
    again, layers = found
    counts = Counter(one.frame for one in again)
    return tuple(one for one in again if counts[one.frame] > 1 + layers[one.frame])


def _grown(subject: ExaminedModel) -> list[Inputs]:
    """The call with more rows; empty where there is no batch, or the model takes no other."""
    call = subject.calls[0]
    rows = next((_rows(value) for value in call.named.values() if _rows(value)), 0)
    if not rows:
        return []
    try:
        calls = [_with_rows(call, rows, rows + growth) for growth in GROWTHS]
        with dynamo.quiet(), subject.gradients():
            for one in calls:
                model, fresh = dynamo.fresh(subject, one)
                model(*fresh.args, **fresh.kwargs)
    except Exception:
        return []
    return calls


def _rows(value: Any) -> int:
    shape: Any = getattr(value, "shape", ())
    return int(shape[0]) if len(shape) >= 2 and hasattr(value, "index_select") else 0


def _with_rows(call: Inputs, rows: int, wanted: int) -> Inputs:
    import torch

    def grown(value: Any) -> Any:
        if _rows(value) != rows:
            return value
        return value.index_select(0, torch.arange(wanted, device=value.device) % rows)

    return Inputs(
        tuple(grown(value) for value in call.args),
        {name: grown(value) for name, value in call.kwargs.items()},
    )


def _findings(
    subject: ExaminedModel, calls: Sequence[Inputs], found: Sequence[Recompile], over: str
) -> list[Finding]:
    """One for each guard: what changed is one finding, in however many parts of a broken graph its
    guard failed."""
    grouped: dict[str, list[Recompile]] = {}
    for one in found:
        kind = _SIZE if _SIZE in one.guard else _NUMBER.sub("#", one.guard)
        grouped.setdefault(kind, []).append(one)
    if not grouped:
        return []
    helpful = _attempts_that_help(subject, calls, len(found), _hints(found))
    findings = []
    for same in grouped.values():
        guard, place = same[0].guard, same[0].place
        remedies = [*helpful, *_guard_rewrites(guard, bool(helpful))]
        evidence = f"compiled again {_times(len(same))} over {over}, because '{guard}' failed"
        where = place if place.file else subject.place
        last = max(one.call for one in same)
        findings.append(
            Finding("recompilation", evidence, where, tuple(remedies), count=len(same), call=last)
        )
    return findings


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _hints(found: Sequence[Recompile]) -> list[str]:
    names = [name for one in found for name in _SETTING.findall(one.hint)]
    return list(dict.fromkeys(names))


def _attempts_that_help(
    subject: ExaminedModel, calls: Sequence[Inputs], before: int, settings: Sequence[str]
) -> list[Remedy]:
    """What helps of that which torch hints at, and of symbolic sizes. One more compilation at the
    second call is what a value costs that becomes symbolic."""
    attempts: list[tuple[str, dict[str, Any]]] = [
        (f"set torch._dynamo.config.{name} = True", {"settings": {name: True}}) for name in settings
    ]
    attempts += [
        ("torch.compile(model, dynamic=True)", {"dynamic": True}),
        ("torch._dynamo.mark_dynamic(x, 0) before the first call", {"prepare": _mark}),
    ]
    remedies = []
    for text, keywords in attempts:
        try:
            after = _compiled_again(subject, calls, **keywords)
        except Exception:
            continue
        left = len(after[0])
        if left < before and not _beyond_the_first(after):
            said = f"tried: {before} → {left} recompilations"
            remedies.append(Remedy(text, said, works=True))
    return remedies


def _mark(call: Inputs) -> None:
    import torch

    for value in call.named.values():
        if _rows(value):
            torch._dynamo.mark_dynamic(value, 0)


def _guard_rewrites(guard: str, solved: bool) -> list[Remedy]:
    length = _LENGTH.search(guard)
    if length is not None and "." in length[1]:
        return [Remedy(f"keep '{length[1]}' out of the call: its length is compiled in")]
    if length is not None:
        return [
            Remedy(
                f"pass '{length[1]}' as a tensor, or padded to one length: the length of a Python "
                "list is compiled in"
            )
        ]
    if solved:
        return []
    if _SIZE in guard:
        return [
            Remedy(
                "keep its size: allocate it once, as large as it may become, and fill it in place"
            )
        ]
    return [Remedy("pass what changes as a tensor: Python values are compiled in")]


def graph_findings(subject: ExaminedModel, graphs: Sequence[Any]) -> list[Finding]:
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


def _upcasts(subject: ExaminedModel, graphs: Sequence[Any]) -> list[Finding]:
    places: dict[Line, str] = {}
    for node in _nodes(graphs):
        said = _upcast(subject, node)
        if said:
            places.setdefault(_place(node), said)
    if not places:
        return []
    remedy = _cast_remedy(subject)
    return [Finding("upcast", said, place, (remedy,)) for place, said in places.items()]


def _upcast(subject: ExaminedModel, node: Any) -> str:
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


def _given(subject: ExaminedModel) -> set[Any]:
    return {getattr(value, "dtype", None) for value in subject.calls[0].named.values()}


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _cast_remedy(subject: ExaminedModel) -> Remedy:
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
    cast = ExaminedModel(subject.name, model.to(floating[0]), subject.calls, subject.file)  # type: ignore[attr-defined]
    text = f"cast the model's parameters and buffers: model.to({floating[0]})"
    try:
        left = [n for n in _nodes(dynamo.capture(cast, call).graphs) if _upcast(cast, n)]
    except Exception:
        return general
    if left:
        return general
    return Remedy(text, "tried: no operation computes in a wider type", works=True)


def _host_copies(subject: ExaminedModel, graphs: Sequence[Any]) -> list[Finding]:
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


def _input_mutations(subject: ExaminedModel, graphs: Sequence[Any]) -> list[Finding]:
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


def _changed_inputs(subject: ExaminedModel) -> list[str]:
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
