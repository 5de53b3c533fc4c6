"""What simulated tunings found, as tables that fit any terminal without hiding what differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from whet.cli.arguments.tables import case_labels
from whet.cli.terminal.output import Column, column_blocks, count_text, natural_width, table, wrap
from whet.replay.lab import Replayed, chance, draws_for, fastest, share_of_repeats

Cells = tuple[str, ...]


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
    values = [Column(title, align="right") for title in titles]
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
