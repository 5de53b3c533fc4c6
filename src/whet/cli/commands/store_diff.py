"""`whet store diff`: what two stores would choose, and where that is not the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, argument, option
from whet.cli.arguments.reading import (
    check_there,
    device_text,
    known_names,
    named,
    problem_text,
    toolchain_text,
)
from whet.cli.terminal.output import (
    Column,
    columns,
    count_text,
    flexible,
    ns_text,
    print_json,
    print_lines,
    right,
    table,
    times_text,
    wrap,
)
from whet.core.errors import UsageError, did_you_mean
from whet.store import open_store

if TYPE_CHECKING:
    from whet.core.workload import Workload
    from whet.engine.review.difference import Difference, Matched
    from whet.store import StoreReader, WorkloadSummary

_SAID = {"other": "changed", "same": "same", "only_a": "only in A", "only_b": "only in B"}


def diff(
    store_a: Annotated[str, argument("STORE_A", "The store to compare with.")],
    store_b: Annotated[str, argument("STORE_B", "The store to compare.")],
    kernel: Annotated[
        str | None, argument("NAME", "Only this kernel, named as for 'whet best'.")
    ] = None,
    only_a: Annotated[
        str, option("--a TEXT", "Of STORE_A only what this device, fingerprint or id has.")
    ] = "",
    only_b: Annotated[str, option("--b TEXT", "The same of STORE_B.")] = "",
    exit_code: Annotated[bool, option("--exit-code", "Exit with 1 if any pick differs.")] = False,
    slower: Annotated[
        bool, option("--slower", "Exit with 1 if any pick of STORE_B is slower.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compare the picks of two stores, and the configs that both measured.

    What became slower comes first.

    One pick counts as faster only if the samples show a larger difference than two measurements of
    the same config have anyway (2 %). Workloads for another device or toolchain are compared only
    if there is no exact match, and marked as such.

    Examples:
      whet store diff before.db after.db        every workload in either store
      whet store diff before.db after.db matmul only one kernel
      whet store diff a.db b.db --exit-code     exit with 1 if any pick differs
      whet store diff main.db new.db --slower   exit with 1 if any pick is slower
      whet store diff all.db all.db --a H100 --b H200
      whet store diff a.db b.db --json | jq '.summary'
    """
    from whet.engine.review.difference import compare_stores

    check_there(store_a, store_b)
    with (
        open_store(store_a, read_only=True, direct=True) as a,
        open_store(store_b, read_only=True, direct=True) as b,
    ):
        ids = _meant(kernel, a, b)
        every = compare_stores(a, b, only_a=only_a, only_b=only_b)
        found = [one for one in every if ids is None or _is_of(one, ids)]
        places = a.location, b.location
    if json:
        print_json(_as_json(found, *places))
    else:
        print_lines([f"A  {places[0]}", f"B  {places[1]}", ""])
        print_lines([*_lines(found), *([""] if found else []), _summary(found)])
    if (exit_code and any(one.kind == "other" for one in found)) or (
        slower and any(one.faster == "a" for one in found)
    ):
        raise typer.Exit(1)


def _meant(kernel: str | None, *stores: StoreReader) -> set[str] | None:
    """The ids of the workloads that go by this name in either store; None is all of them."""
    if kernel is None:
        return None
    known = [one.workload for store in stores for one in store.workloads()]
    ids = named(kernel, known)
    if not ids:
        hint = did_you_mean(kernel, sorted(known_names(known)))
        raise UsageError(f"neither store has results for kernel '{kernel}'{hint}")
    return ids


def _is_of(one: Difference, ids: set[str]) -> bool:
    return any(side is not None and side.workload.id in ids for side in (one.a, one.b))


def _lines(found: Sequence[Difference]) -> list[str]:
    """A table, in which other picks and what else is not the same follow their row."""
    if not found:
        return []
    layout = [
        Column("pick"),
        flexible("workload"),
        right("A"),
        right("B"),
        right("B/A"),
        Column("faster"),
    ]
    rows = [
        (
            _SAID[one.kind],
            problem_text(_workload(one)),
            "" if one.a is None else ns_text(one.a.median_ns),
            "" if one.b is None else ns_text(one.b.median_ns),
            "" if one.ratio is None else times_text(one.ratio.mid),
            _verdict(one),
        )
        for one in found
    ]
    head, *body = table(layout, rows, columns())
    lines = [head]
    for one, row in zip(found, body, strict=True):
        lines += [row, *_details(one, columns())]
    return lines


def _verdict(one: Difference) -> str:
    if one.a is None or one.b is None or one.ratio is None:
        return ""
    return "unclear" if one.faster is None else one.faster.upper()


def _details(one: Difference, width: int) -> list[str]:
    if one.a is None or one.b is None:
        return []
    texts = []
    if one.kind == "other":
        texts += [f"A  {_pick(one.a)}", f"B  {_pick(one.b)}"]
    if one.matched is not None:
        texts.append(_matched_text(one.matched))
    for part in one.differs:
        before, after = (_part(part, side.workload) for side in (one.a, one.b))
        texts.append(f"{part}: {before} in A, {after} in B")
    for name, side in (("A", one.a), ("B", one.b)):
        if side.rivals:
            rivals = " or ".join(f"[{rival.config}]" for rival in side.rivals)
            texts.append(f"contested in {name}: a store merged into it picked {rivals}")
    if one.why and one.a.best is not None and one.b.best is not None:
        texts.append(f"not compared: {one.why}")
    indent = " " * 12
    return [indent + line for text in texts for line in wrap(text, width - len(indent), indent=2)]


def _matched_text(matched: Matched) -> str:
    low, mid, high = matched.ratio
    return (
        f"{count_text(matched.configs, 'config')} measured in both: B/A {times_text(mid)} "
        f"({low:.2f} to {high:.2f}), {matched.slower} slower, {matched.faster} faster"
    )


def _pick(one: WorkloadSummary) -> str:
    return "no working config" if one.best is None else str(one.best.config)


def _part(part: str, workload: Workload) -> str:
    if part == "device":
        return device_text(workload.device)
    return toolchain_text(workload.toolchain) if part == "toolchain" else workload.fingerprint[:8]


def _workload(one: Difference) -> Workload:
    known = one.a or one.b
    assert known is not None
    return known.workload


def _counts(found: Sequence[Difference]) -> dict[str, int]:
    counts = Counter[str](one.kind for one in found)
    told = sum(one.kind == "other" and one.faster is not None for one in found)
    return {**{kind: counts[kind] for kind in _SAID}, "told_apart": told}


def _summary(found: Sequence[Difference]) -> str:
    counts = _counts(found)
    told = f" ({counts['told_apart']} significant)" if counts["other"] else ""
    return (
        f"{count_text(len(found), 'workload')}: {counts['same']} same, {counts['other']} "
        f"changed{told}, {counts['only_a']} only in A, {counts['only_b']} only in B"
    )


def _as_json(found: Sequence[Difference], a: str, b: str) -> dict[str, Any]:
    return {
        "v": 1,
        "a": a,
        "b": b,
        "summary": _counts(found),
        "workloads": [
            {
                "pick": one.kind,
                "a": _side(one.a),
                "b": _side(one.b),
                "differs": list(one.differs),
                "ratio": None if one.ratio is None else one.ratio._asdict(),
                "faster": one.faster,
                "matched": None if one.matched is None else _matched_json(one.matched),
                "not_compared": one.why or None,
            }
            for one in found
        ],
    }


def _matched_json(matched: Matched) -> dict[str, Any]:
    return {**vars(matched), "ratio": matched.ratio._asdict()}


def _side(one: WorkloadSummary | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "workload": one.workload.to_json(),
        "config": None if one.best is None else dict(one.best.config),
        "median_ns": one.median_ns,
        "contested": [dict(rival.config) for rival in one.rivals],
    }
