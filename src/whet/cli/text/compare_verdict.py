"""What follows from a comparison of strategies, in sentences that go by the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from whet.cli.terminal.output import count_text
from whet.replay.scores import DEFAULT, Axis, Lead, Score, Standing, recommended

_APART = "too close to call"


def verdict(standings: Mapping[Axis, Standing], workloads: int) -> str:
    """What to use, by how much it was ahead, and how sure that is."""
    order = standings["evaluations"].order
    repeats = min(len(one.repeats) for one in order)
    where = "this workload" if workloads == 1 else f"these {workloads} workloads"
    if repeats < 2:
        return (
            f"{order[0].search} was best over evaluations on {where}, but one repeat cannot "
            "say how certain that is; use --repeats 5 or more."
        )
    basis = f"This holds for {where} and {repeats} repeats, with 95 % confidence."
    if len(order) == 1:
        return f"{_against_random(standings, order[0].search)} {basis}"
    chosen = recommended(list(standings.values()))
    if chosen is None:
        parts = [
            f"{start} use {one.best.search}: it was {_led(one.lead_of(one.best.search))}."
            for start, one in zip(
                ("For few evaluations", "For little time"), standings.values(), strict=True
            )
        ]
        return " ".join([*parts, basis])
    leads = {axis: one.lead_of(chosen) for axis, one in standings.items()}
    parts = [f"over {axis} it was {_led(one)}" for axis, one in leads.items()]
    said = f"{parts[0][0].upper()}{parts[0][1:]}; {parts[1]}."
    if all(one.sure for one in leads.values()):
        start = f"Use {chosen}."
    else:
        named = f"{chosen}, the default" if chosen == DEFAULT else chosen
        start = f"Use {named}: nothing proved better."
        basis += f" --repeats {4 * repeats} would halve the ±."
    beaten = all(_mine(one, chosen).mean > _mine(one, chosen).half for one in standings.values())
    if chosen != "random" and not beaten:
        said += f" {_against_random(standings, chosen)}"
    return f"{start} {said} {basis}"


def about_random(random: Score) -> str:
    """Whether the strategy did as was calculated for it."""
    if abs(random.mean) <= random.half:
        agrees = "as calculated, within the interval"
    else:
        agrees = (
            f"{'less' if random.mean < 0 else 'more'} than calculated: by chance, or because "
            "it judges a config by a few samples and the calculation by all of them"
        )
    scored = f"{random.mean:.2f} ± {random.half:.2f}"
    repeats = count_text(len(random.repeats), "repeat")
    return f"Random search should score 0 as calculated; in {repeats} it scored {scored}, {agrees}."


def _led(one: Lead) -> str:
    if one.by == 0:
        return f"level with {one.over}"
    digits = 2 if max(abs(one.by), one.half) >= 0.01 else 4
    by = f"{abs(one.by):.{digits}f} ± {one.half:.{digits}f}"
    said = f"ahead of the next best ({one.over})" if one.by > 0 else f"behind the best ({one.over})"
    return f"{said} by {by}" + ("" if one.sure else f", {_APART}")


def _against_random(standings: Mapping[Axis, Standing], search: str) -> str:
    scores = {axis: _mine(one, search) for axis, one in standings.items()}
    listed = " and ".join(
        f"{one.mean:.2f} ± {one.half:.2f} over {axis}" for axis, one in scores.items()
    )
    if all(one.mean > one.half for one in scores.values()):
        means = "it was better than random search, which scores 0"
    elif all(one.mean < -one.half for one in scores.values()):
        means = "it was worse than random search, which scores 0"
    else:
        means = "it was not shown to be better than random search, which scores 0"
    return f"{search} scored {listed}: {means}."


def _mine(standing: Standing, search: str) -> Score:
    return next(one for one in standing.order if one.search == search)


def interval(one: Score) -> list[float] | None:
    """None where one repeat has none."""
    if math.isinf(one.half):
        return None
    return [round(one.mean - one.half, 6), round(one.mean + one.half, 6)]
