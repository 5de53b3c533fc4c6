"""`whet lab replay`: how soon a strategy finds what is known to be the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whet.cli.commands.lab import case_labels, counts_named, make_cases, processes, searches_named
from whet.cli.terminal.countdown import Countdown
from whet.cli.terminal.output import (
    Column,
    column_blocks,
    columns,
    count_text,
    natural_width,
    print_json,
    print_lines,
    right,
    table,
    wrap,
)
from whet.core.errors import UsageError
from whet.replay.lab import (
    Experiment,
    Replayed,
    chance,
    draws_for,
    fastest,
    replay,
    share_of_repeats,
)

Cells = tuple[str, ...]

LOOKS = "10,25,50,100"


def replay_tables(
    tables: Sequence[str],
    search: str,
    evals: str | None,
    top: str | None,
    repeats: int,
    seed: int,
    transfer: Sequence[str] | None,
    workloads: int | None,
    jobs: int | None,
    json: bool,
) -> None:
    share = None if top is None else _share(top)
    if evals is None:
        evals = LOOKS if share is None else f"10,30,{draws_for(share)}"
    searches, looks = searches_named(search), counts_named(evals, "--evals")
    cases = make_cases(tables, transfer, workloads)
    experiment = Experiment(tuple(cases), searches, looks[-1], repeats, seed)
    found = replay(experiment, processes(jobs), Countdown("tunings"))
    if json:
        print_json({"v": 1, "tables": [_as_json(one, looks, share) for one in found]})
    elif share is not None:
        print_lines(chance_lines(found, share, looks, repeats, columns()))
    else:
        print_lines(found_lines(found, looks, repeats, columns()))


def _share(text: str) -> float:
    """`"5%"` is 0.05."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0.0001 <= share < 1:
        raise UsageError(f"--top '{text}' is not valid; use a percentage, such as 5%")
    return share


def _as_json(one: Replayed, looks: Sequence[int], share: float | None) -> dict[str, Any]:
    optimum = one.case.workload.optimum
    by_looks = {str(look): one.fractions(look) for look in looks}
    data = {
        "table": one.case.name,
        "workload": dict(one.case.workload.key),
        "search": one.search,
        "transfer": len(one.case.sources),
        "optimum": None if optimum is None else optimum.ns,
        "found": {look: round(sum(got) / len(got), 6) for look, got in by_looks.items()},
        "worst": {look: round(min(got), 6) for look, got in by_looks.items()},
        "search_ms_per_eval": round(one.search_ms_per_eval, 4),
    }
    if share is not None:
        wanted = fastest(one.case, share)
        data["tried_top"] = {
            str(look): round(share_of_repeats(one, wanted, look), 6) for look in looks
        }
    return data


def found_lines(
    found: Sequence[Replayed], looks: Sequence[int], repeats: int, width: int
) -> list[str]:
    """How near the optimum it came."""
    last = looks[-1]
    titles = [*(f"at {look}" for look in looks), "worst", "ms/eval"]

    def cells(one: Replayed) -> Cells:
        means = (_percent(_mean(one.fractions(look))) for look in looks)
        return (*means, _percent(min(one.fractions(last))), f"{one.search_ms_per_eval:.2f}")

    def means(mine: Sequence[Replayed]) -> Cells:
        at = [_mean([_mean(one.fractions(look)) for one in mine]) for look in looks]
        worst = min(_mean(one.fractions(last)) for one in mine)
        own = _mean([one.search_ms_per_eval for one in mine])
        return (*map(_percent, at), _percent(worst), f"{own:.2f}")

    said = (
        f"% of the optimum's speed, mean of {count_text(repeats, 'repeat')}; worst: worst of the "
    )
    said += f"repeats at {last}"
    if len({one.case for one in found}) > 1:
        said += "; in the mean rows: worst of the workloads"
    return _lines(found, said, titles, cells, means, width)


def chance_lines(
    found: Sequence[Replayed], share: float, looks: Sequence[int], repeats: int, width: int
) -> list[str]:
    """How many repeats had tried one of the fastest configs."""
    wanted = {one.case: fastest(one.case, share) for one in found}

    def shares(one: Replayed) -> list[float]:
        return [share_of_repeats(one, wanted[one.case], look) for look in looks]

    def cells(one: Replayed) -> Cells:
        return tuple(map(_percent, shares(one)))

    def means(mine: Sequence[Replayed]) -> Cells:
        return tuple(_percent(_mean(at)) for at in zip(*map(shares, mine), strict=True))

    top = f"{100 * share:g} %"
    said = f"% of {count_text(repeats, 'repeat')} that tried one of the fastest {top} of all "
    said += f"configs, ± {100 * 1.96 * 0.5 / math.sqrt(repeats):.1f} at most by chance"
    lines = _lines(found, said, [f"at {look}" for look in looks], cells, means, width)
    calculated = ", ".join(f"{_percent(chance(share, look))} % at {look}" for look in looks)
    said = (
        f"The chance that one of n random configs is among the fastest {top} is 1 − "
        f"{1 - share:g}^n: "
    )
    said += f"{calculated}. A 95 % chance takes {draws_for(share)}."
    if any(one.search == "random" for one in found):
        said += " Random search starts with the author's first config."
    return [*lines, "", *wrap(said, width)]


def _lines(
    found: Sequence[Replayed],
    said: str,
    titles: Sequence[str],
    cells: Callable[[Replayed], Cells],
    means: Callable[[Sequence[Replayed]], Cells],
    width: int,
) -> list[str]:
    searches = list(dict.fromkeys(one.search for one in found))
    cases = list(dict.fromkeys(one.case for one in found))
    common, labels = case_labels(cases)
    about = [common, *([f"search {searches[0]}"] if len(searches) == 1 < len(cases) else [])]
    groups: dict[str, dict[str, Cells]] = {}
    for case, label in zip(cases, labels, strict=True):
        groups[label] = {one.search: cells(one) for one in found if one.case is case}
    if len(cases) > 1:
        groups[f"mean of {len(cases)}"] = {
            name: means([one for one in found if one.search == name]) for name in searches
        }
    head = [*wrap(", ".join(about), width), *wrap(said, width)]
    return [*head, *_blocks(groups, titles, len(cases), len(searches), width)]


def _blocks(
    groups: Mapping[str, Mapping[str, Cells]],
    titles: Sequence[str],
    cases: int,
    searches: int,
    width: int,
) -> list[str]:
    """One table where it fits; else each workload on a line of its own above its rows, and what
    still is too wide in several tables of some columns each."""
    told = searches > 1 or cases == 1
    names = [*([Column("workload")] if cases > 1 else []), *([Column("search")] if told else [])]
    values = [right(title) for title in titles]
    rows = [
        (*([label] if cases > 1 else []), *([name] if told else []), *cells)
        for label, group in groups.items()
        for name, cells in group.items()
    ]
    if natural_width([*names, *values], rows) <= width:
        body = table([*names, *values], rows, width)
        at = len(body) - (searches if cases > 1 else 0)
        return ["", *body[:at], *([""] if at < len(body) else []), *body[at:]]
    layout = [Column("search" if told else ""), *values]
    lines: list[str] = []
    rows = [
        (name if told else "", *cells) for group in groups.values() for name, cells in group.items()
    ]
    for picked in column_blocks(layout, rows, width):
        body = table([layout[at] for at in picked], [[r[at] for at in picked] for r in rows], width)
        lines += ["", body.pop(0)]
        for label, group in groups.items():
            lines += [*(wrap(label, width) if cases > 1 else []), *body[: len(group)]]
            body = body[len(group) :]
    return lines


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
