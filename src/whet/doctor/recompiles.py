"""Recompilations: the guard that failed, and what keeps the model from being compiled again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from whet.doctor import dynamo
from whet.doctor.dynamo import Recompile
from whet.doctor.finding import Finding, Remedy
from whet.doctor.subject import Inputs, Patient

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


def recompile_findings(subject: Patient) -> list[Finding]:
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


def _compiled_again(subject: Patient, calls: Sequence[Inputs], **more: Any) -> Found:
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


def _grown(subject: Patient) -> list[Inputs]:
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
    subject: Patient, calls: Sequence[Inputs], found: Sequence[Recompile], over: str
) -> list[Finding]:
    """One for each guard: what changed is one finding, in however many parts of a broken graph its
    guard failed."""
    grouped: dict[str, list[Recompile]] = {}
    for one in found:
        kind = _SIZE if _SIZE in one.guard else _NUMBER.sub("#", one.guard)
        grouped.setdefault(kind, []).append(one)
    if not grouped:
        return []
    helpful = _tried(subject, calls, len(found), _hints(found))
    findings = []
    for same in grouped.values():
        guard, place = same[0].guard, same[0].place
        remedies = [*helpful, *_rewrites(guard, bool(helpful))]
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


def _tried(
    subject: Patient, calls: Sequence[Inputs], before: int, settings: Sequence[str]
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


def _rewrites(guard: str, solved: bool) -> list[Remedy]:
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
