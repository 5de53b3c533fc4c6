"""What `whet precompile` says of what it has compiled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from whet.cli.arguments.reading import problem_text
from whet.cli.terminal.output import (
    Column,
    bytes_text,
    first_line,
    page,
    seconds_text,
    table,
    told_by_values,
    wrap,
)
from whet.cli.text.left import left_lines
from whet.core.status import Status
from whet.core.workload import Workload
from whet.targets.triton.call import out_of_resources
from whet.targets.triton.offline.kernel import key_text
from whet.targets.triton.offline.precompile import Made
from whet.targets.triton.packed.architectures import REGISTER_BYTES

_NUMBER = re.compile(r"\d+")
UNITS = (
    "shared: memory per block; regs: 32-bit registers per thread; spilled: bytes per thread; "
    "occ.: resident warps out of the maximum of a multiprocessor"
)


@dataclass(frozen=True)
class NotCompiled:
    """A recorded key that nothing was compiled for, and why."""

    workload: Workload
    why: str


def as_json(
    kernel: str, made: Sequence[Made], folder: str | None, left: Sequence[NotCompiled] = ()
) -> dict[str, Any]:
    return {
        "v": 1,
        "kernel": kernel,
        "out": folder,
        "builds": [_row_json(one) for one in made],
        **(
            {"left": [{"key": problem_text(o.workload), "why": o.why} for o in left]}
            if left
            else {}
        ),
    }


def _row_json(one: Made) -> dict[str, Any]:
    return {
        **({"kernel": one.order.kernel} if one.order.kernel else {}),
        "architecture": one.order.architecture.name,
        "gpus": list(one.order.architecture.products),
        "config": dict(one.order.config),
        "keys": [dict(key) for key in one.order.keys],
        "why": one.order.why,
        "status": one.status.value,
        "error": one.error,
        "resources": None if one.resources is None else asdict(one.resources),
        "binary_bytes": one.binary_bytes,
        "portable_key": one.portable or None,
        "was_there": one.was_there,
        "seconds": round(one.seconds, 3),
    }


def made_table(made: Sequence[Made], width: int) -> list[str]:
    """One line a binary, below what all of them share, and what the columns count."""
    shown = [one for one in made if one.resources is not None]
    if not shown:
        return []
    alike = len({tuple(one.order.config) for one in shown}) == 1
    by_gpu = groupby(
        shown, lambda one: (one.order.kernel, "" if alike else one.order.architecture.name)
    )
    lines = [line for _, group in by_gpu for line in [*_table(list(group), width), ""]]
    return [*lines, *wrap(UNITS, width)]


def _table(shown: Sequence[Made], width: int) -> list[str]:
    keys = [_keys_text(one.order.keys) for one in shown]
    one_key = len(set(keys)) == 1
    labels = [one.order.architecture.label for one in shown]
    by, configs = told_by_values(
        [one.order.config for one in shown], width - 45 - max(map(len, labels))
    )
    kernel = [shown[0].order.kernel] if shown[0].order.kernel else []
    title = ", ".join([*kernel, *([f"for {keys[0]}"] if one_key else []), *([by] if by else [])])
    layout = [
        Column("arch"),
        *([] if one_key else [Column("key", flexible=True)]),
        Column("config", flexible=True),
        *(Column(title, align="right") for title in ("shared", "regs", "spilled", "occ.", "built")),
    ]
    rows = [
        (label, *([] if one_key else [key]), config, *_used(one))
        for one, label, key, config in zip(shown, labels, keys, configs, strict=True)
    ]
    above = [*wrap(title, width, indent=2), ""] if title else []
    return [*above, *table(layout, rows, width)]


def _used(one: Made) -> tuple[str, ...]:
    used = one.resources
    assert used is not None
    return (
        bytes_text(used.shared_bytes),
        "–" if used.registers is None else str(used.registers),
        "–" if used.spills is None else bytes_text(REGISTER_BYTES * used.spills),
        "–" if used.occupancy is None else f"{used.occupancy:.0%}",
        "there" if one.was_there else seconds_text(one.seconds),
    )


def _keys_text(keys: Sequence[Mapping[str, Any]]) -> str:
    more = f" (+{len(keys) - 1})" if len(keys) > 1 else ""
    return f"{key_text(keys[0])}{more}"


def closing_lines(
    made: Sequence[Made], folder: str | None, left: Sequence[NotCompiled] = ()
) -> list[str]:
    """Why some were chosen or could not be made, how many came of it, and how to use them."""
    remarks = dict.fromkeys([*_notes(made), *_refusals(made)])
    lines = [line for remark in remarks for line in wrap(remark, page(), 2)]
    refused = left_lines([(one.workload, one.why) for one in left], page())
    lines += [*(["not compiled:"] if refused else []), *refused]
    built = [one for one in made if one.resources is not None]
    lines.append(f"{len(built)} of {len(made)} compiled")
    packed = {one.portable: one.binary_bytes for one in built if one.portable}
    if folder is None:
        lines.append("nothing was written; use --out DIR to keep the binaries")
    elif packed:
        size = bytes_text(sum(packed.values()))
        lines.append(f"{size} in {folder}; use them with WHET_BINARIES={folder}")
    return lines


def _notes(made: Sequence[Made]) -> list[str]:
    notes = []
    for one in made:
        where = f"{one.order.architecture.label} [{one.order.config}]"
        if one.order.why:
            notes.append(f"{where} is {one.order.why}")
        if one.resources is not None and one.error:
            notes.append(f"{where} {one.error}")
    return notes


def _refusals(made: Sequence[Made]) -> list[str]:
    """Those that were not compiled for reasons which differ in numbers at most are one."""
    alike: dict[tuple[str, str, str], list[Made]] = {}
    for one in made:
        if one.resources is None:
            refusal: Any = out_of_resources(one.error)
            verdict = "refused" if one.status is Status.RESOURCES else "failed"
            what = _NUMBER.sub("", first_line(one.error)) if refusal is None else refusal.name
            alike.setdefault((one.order.architecture.label, verdict, what), []).append(one)
    return [_refusal_text(label, verdict, of) for (label, verdict, _), of in alike.items()]


def _refusal_text(label: str, verdict: str, made: Sequence[Made]) -> str:
    one = f"[{made[0].order.config}]"
    who, first = (one, "") if len(made) == 1 else (f"{len(made)} configs", f", the first {one}")
    refusals: list[Any] = [out_of_resources(each.error) for each in made]
    if refusals[0] is None:
        return f"{label} {who} {verdict}{first}: {first_line(made[0].error)}"
    what, limit = refusals[0].name, refusals[0].limit
    shown = bytes_text if what == "shared memory" else str
    least, most = (shown(pick(each.required for each in refusals)) for pick in (min, max))
    needs = least if least == most else f"{least} to {most}"
    return f"{label} {who} rejected{first}: needs {needs} of {what}, limit {shown(limit)}"
