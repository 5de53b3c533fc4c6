"""Everything the doctor asks of torch's private interfaces, in one place.

A function raises `TorchLacksError` where this version of torch lacks what it needs; that costs one
finding, and the report says so.
"""

from __future__ import annotations

import json
import logging
import re
import sysconfig
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from whet.doctor.finding import Line
from whet.doctor.subject import ExaminedModel, Inputs

# In torch 2.13 as well as 2.11 a branch on a tensor is reported by the name of the byte code's
# handler, not by its entry in the registry.
_BRANCH = "Data-dependent branching"

_GIVEN_UP = "Skipping the function and falling back to eager. Graph break encountered:"


_PYTHON = sysconfig.get_paths()["stdlib"]


class TorchLacksError(Exception):
    """This version of torch lacks an interface."""


@dataclass(frozen=True)
class Break:
    """`kind` is the name in torch's registry, `code` its number there."""

    kind: str
    code: str
    explanation: str
    hints: tuple[str, ...]
    place: Line


@dataclass(frozen=True)
class Recompile:
    """`guard` is the condition that no longer held; `frame` numbers the part of the model, of which
    there are several where the graph breaks; `call` the call it happened in, from 1 on."""

    guard: str
    hint: str
    place: Line
    frame: str
    call: int


@dataclass(frozen=True)
class Captured:
    """What Dynamo made of one call: the graphs are `torch.fx` graphs."""

    breaks: tuple[Break, ...]
    graphs: tuple[Any, ...]
    operations: int


def reset() -> None:
    import torch

    torch._dynamo.reset()


def capture(
    subject: ExaminedModel, call: Inputs, settings: Mapping[str, Any] | None = None
) -> Captured:
    """Traces one call. `settings` are of `torch._dynamo.config`."""
    import torch

    explain = getattr(torch._dynamo, "explain", None)
    if explain is None:
        raise TorchLacksError("torch._dynamo.explain is not there")
    model, call = fresh(subject, call)
    reset()
    with quiet(), _configured(settings or {}), subject.gradients(), given_up() as left_to_eager:
        told = explain(model)(*call.args, **call.kwargs)
    reset()
    breaks = [_break(reason) for reason in told.break_reasons if reason.graph_break]
    breaks += [_given_up(text) for text in left_to_eager]
    return Captured(tuple(breaks), tuple(told.graphs), int(told.op_count))


def recompiles(
    subject: ExaminedModel,
    calls: Sequence[Inputs],
    *,
    dynamic: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    prepare: Callable[[Inputs], None] | None = None,
) -> tuple[Recompile, ...]:
    """What is compiled again when the model is called with these inputs one after another."""
    import torch
    from torch._dynamo import utils

    clear = getattr(utils, "clear_compilation_metrics", None)
    metrics = getattr(utils, "get_compilation_metrics", None)
    if clear is None or metrics is None:
        raise TorchLacksError("torch._dynamo.utils.get_compilation_metrics is not there")
    model, _ = fresh(subject, calls[0])
    copies = [fresh(subject, call)[1] for call in calls]
    reset()
    clear()
    ends: list[int] = []
    with quiet(), _configured(settings or {}), subject.gradients():
        compiled = torch.compile(model, backend="eager", dynamic=dynamic)
        for call in copies:
            if prepare is not None:
                prepare(call)
            compiled(*call.args, **call.kwargs)
            ends.append(len(metrics()))
    entries = list(metrics())
    reset()
    if entries and not hasattr(entries[0], "recompile_reason"):
        raise TorchLacksError("the compilation metrics have no recompile_reason")
    return tuple(
        _recompile(one, bisect_right(ends, at) + 1)
        for at, one in enumerate(entries)
        if one.recompile_reason
    )


def mode_names() -> tuple[str, ...]:
    import torch._inductor

    list_modes = getattr(torch._inductor, "list_mode_options", None)
    if list_modes is None:
        raise TorchLacksError("torch._inductor.list_mode_options is not there")
    return tuple(list_modes())


def mode_options(mode: str) -> dict[str, Any]:
    import torch._inductor

    return dict(torch._inductor.list_mode_options(mode))


def inductor_settings() -> tuple[str, ...]:
    """All names that `options=` takes."""
    import torch._inductor

    list_options = getattr(torch._inductor, "list_options", None)
    if list_options is None:
        raise TorchLacksError("torch._inductor.list_options is not there")
    return tuple(list_options())


@cache
def registry() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Torch's own list of graph breaks, by the name of the break: its number and its entry."""
    import torch._dynamo

    path = Path(torch._dynamo.__file__).with_name("graph_break_registry.json")
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {
        str(entry["Gb_type"]): (code, entry)
        for code, entries in data.items()
        for entry in reversed(entries)
    }


def fresh(subject: ExaminedModel, call: Inputs) -> tuple[Callable[..., Any], Inputs]:
    """Copies: a probe leaves neither counters nor inputs changed. What cannot be copied is used."""
    return _copied(subject.model), Inputs(_copied(call.args), _copied(dict(call.kwargs)))


def _copied(value: Any) -> Any:
    try:
        return deepcopy(value)
    except Exception:
        return value


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings that torch logs while it traces come back as findings; what the model prints or
    logs is said by nobody."""
    import warnings

    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            redirect_stdout(StringIO()),
            redirect_stderr(StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


@contextmanager
def _configured(settings: Mapping[str, Any]) -> Iterator[None]:
    import torch._dynamo.config as config

    known = {name: value for name, value in settings.items() if hasattr(config, name)}
    if len(known) < len(settings):
        missing = next(name for name in settings if name not in known)
        raise TorchLacksError(f"torch._dynamo.config.{missing} is not there")
    with config.patch(**known):
        yield


@contextmanager
def given_up() -> Iterator[list[str]]:
    """What Dynamo logs of functions that it leaves to eager as a whole, since it could not go on
    after a break: `explain` does not tell of these. A function is told of once."""
    found: dict[str, str] = {}

    class Listen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if _GIVEN_UP in text:
                found.setdefault(text.partition("\n")[0], text)

    import torch._dynamo.symbolic_convert  # noqa: F401  (makes the logger)

    logger = logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks")
    before = logger.level, logger.propagate
    listen, told = Listen(), list[str]()
    logger.addHandler(listen)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield told
    finally:
        told += found.values()
        logger.removeHandler(listen)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def _given_up(text: str) -> Break:
    """The line is in the first one: `Graph break in user code at FILE:LINE`."""
    first, _, rest = text.partition("\n")
    said, _, stack = rest.partition(_GIVEN_UP)[2].partition("User code traceback:")
    file, _, line = first.rpartition(" ")[2].rpartition(":")
    place = place_in(stack)
    if not place.file and line.isdigit():
        place = Line(file, int(line))
    one = _told("\n".join(said.strip().splitlines()), place)
    why = f"{one.explanation} The whole function is left to eager.".strip()
    return replace(one, explanation=why)


def _break(reason: Any) -> Break:
    return _told(str(reason.reason), _innermost(reason.user_stack))


def _told(text: str, place: Line) -> Break:
    """The kind, then lines of `Explanation:`, `Hint:` and a debug context."""
    lines = text.splitlines()
    kind = lines[0].strip() if lines else ""
    checked = kind == "step_unsupported" and place.code.startswith("assert ")
    if kind.startswith("generic_jump") or checked:
        kind = _BRANCH
    explanation = _after("Explanation:", lines)
    hints = [line.partition("Hint:")[2].strip() for line in lines if "Hint:" in line]
    code, entry = registry().get(kind, ("", {}))
    if kind == _BRANCH and not explanation:
        explanation = "The branch taken depends on the values of a tensor."
    if not hints:
        hints = [hint for hint in entry.get("Hints", ()) if "{" not in hint]
    return Break(kind, code, explanation, tuple(hints), place)


def _after(word: str, lines: Sequence[str]) -> str:
    return next((line.partition(word)[2].strip() for line in lines if word in line), "")


def _is_own(file: str) -> bool:
    """Neither torch's nor Python's."""
    library = file.startswith(_PYTHON) and "-packages" not in file
    return "/torch/" not in file and not library


def _innermost(stack: Any) -> Line:
    """The last line of the user's own; where there is none, the last."""
    frames = list(stack or ())
    own = [frame for frame in frames if _is_own(frame.filename)]
    if not frames:
        return Line()
    frame = (own or frames)[-1]
    return Line(frame.filename, frame.lineno or 0, (frame.line or "").strip())


_STACK_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


def place_in(stack: str) -> Line:
    """The innermost of the user's own lines in a stack printed as text."""
    lines = stack.splitlines()
    found = [(at, match) for at, line in enumerate(lines) if (match := _STACK_LINE.search(line))]
    own = [one for one in found if _is_own(one[1]["file"])]
    if not found:
        return Line()
    at, match = (own or found)[-1]
    code = lines[at + 1].strip() if at + 1 < len(lines) else ""
    return Line(match["file"], int(match["line"]), code)


def _recompile(metrics: Any, call: int) -> Recompile:
    """`0/1: self.calls == 0    # source line (HINT: …)`, then a stack where there is one."""
    text = str(metrics.recompile_reason)
    first, _, rest = text.partition("\n")
    condition, _, hint = first.partition("(HINT:")
    guard = condition.partition(": ")[2].split("   ")[0].split("  #")[0].strip()
    place = place_in(rest)
    if not place.line:
        place = Line(metrics.co_filename or "", metrics.co_firstlineno or 0)
    if "/torch/" in place.file:
        place = Line()
    frame = str(metrics.compile_id).partition("/")[0]
    return Recompile(guard, hint.strip().removesuffix(")"), place, frame, call)
