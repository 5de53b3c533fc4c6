"""What `whet verify` says of what it measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from whet.cli.arguments.reading import problem_text
from whet.cli.terminal.output import (
    Column,
    columns,
    count_text,
    first_line,
    ns_text,
    table,
    times_text,
    wrap,
)
from whet.cli.text.verified import Checked
from whet.engine.review.verify import Verdict, Verification
from whet.measure.racing.stats import Ratio, percent_text

_LAYOUT = (
    Column("verdict"),
    Column("workload", flexible=True),
    Column("stored", align="right"),
    Column("now", align="right"),
    Column("now/stored", align="right"),
    Column("first/now", align="right"),
)


def report(found: Sequence[Checked], fail_over: float) -> list[str]:
    """A table, in which what is to be said of a pick follows its row; then the summary."""
    done = [one.done for one in found if one.done is not None]
    head, *body = table(_LAYOUT, [_row(one) for one in done], columns())
    lines = [head]
    for one, row in zip(done, body, strict=True):
        lines += [row, *_indented(_remarks(one))]
    for other in found:
        if other.done is None:
            lines += wrap(f"not verified: {other.what}: {other.why}", columns(), indent=2)
    counts = Counter[str](one.verdict for one in done)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _verdicts() if counts[verdict])
    lost = sum(one.beats_first is False for one in done)
    slower = f"; {lost} slower than the first config" if lost else ""
    allowed = f"slower means more than {percent_text(fail_over)} slower, at 95 % confidence"
    return [*lines, "", f"{count_text(len(done), 'pick')}: {said}{slower} ({allowed})"]


def as_json(found: Sequence[Checked], fail_over: float) -> dict[str, Any]:
    return {
        "v": 1,
        "fail_over": fail_over,
        "failed": any(one.done.failed for one in found if one.done is not None),
        "picks": [_as_json(one.done) for one in found if one.done is not None],
        "not_verified": [{"what": one.what, "why": one.why} for one in found if one.done is None],
    }


def _verdicts() -> tuple[str, ...]:
    return get_args(Verdict)


def _row(one: Verification) -> tuple[str, ...]:
    return (
        one.verdict,
        problem_text(one.workload),
        ns_text(one.pick.median_ns),
        ns_text(None if one.now is None else one.now.median_ns),
        "–" if one.ratio is None else times_text(one.ratio.mid),
        _over_first(one),
    )


def _over_first(one: Verification) -> str:
    if one.first == one.pick.config:
        return "is first"
    if one.speedup is None:
        return "–"
    unsure = "?" if one.beats_first is None else ""
    return f"{times_text(one.speedup.mid)}{unsure}"


def _remarks(one: Verification) -> list[str]:
    texts = []
    if one.verdict in ("slower", "undecided") and one.ratio is not None:
        low, high = times_text(one.ratio.low), times_text(one.ratio.high)
        texts.append(f"[{one.pick.config}] takes {low} to {high} its stored time")
    elif one.verdict != "ok":
        texts.append(f"[{one.pick.config}]")
    if one.beats_first is False:
        texts.append(f"the author's first config [{one.first}] is now faster")
    if one.differs:
        texts.append(f"stored for a different {' and '.join(one.differs)}")
    if one.reason:
        texts.append(first_line(one.reason))
    return texts


def _indented(texts: Sequence[str], margin: int = 12) -> list[str]:
    room = columns() - margin
    return [" " * margin + line for text in texts for line in wrap(text, room, indent=2)]


def _as_json(one: Verification) -> dict[str, Any]:
    return {
        "workload": one.workload.to_json(),
        "stored_for": one.stored.to_json(),
        "differs": list(one.differs),
        "config": dict(one.pick.config),
        "first": None if one.first is None else dict(one.first),
        "verdict": one.verdict,
        "reason": one.reason,
        "stored_ns": one.pick.median_ns,
        "now_ns": None if one.now is None else one.now.median_ns,
        "first_ns": None if one.first_now is None else one.first_now.median_ns,
        "ratio": _ratio(one.ratio),
        "speedup": _ratio(one.speedup),
        "pace": _ratio(one.pace),
        "beats_first": one.beats_first,
    }


def _ratio(ratio: Ratio | None) -> dict[str, float] | None:
    return None if ratio is None else ratio._asdict()
