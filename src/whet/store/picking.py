"""Which config of a workload is the best, also where several stores have chosen one.

A config is faster than another only if both were measured on one occasion, that is in one run:
what else the machine was doing is then the same for both.

The runs of one store form a chain: each knew those that started before it. A merge brings in runs
that know nothing of it; they meet again in the first run that chooses a config knowing both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whet.core.run import Run
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.store.protocol import Pick
from whet.store.rows import usable_median

# Which of two configs is the faster; "neither" where a run has called them equal.
Order = Literal["first", "second", "neither"]


@dataclass(frozen=True)
class MergeDecision:
    """The pick among those of several stores, and the ids of the trials that it rests on."""

    pick: Pick
    kept: frozenset[str]


def best_of(runs: Iterable[Run], latest: Mapping[str, Trial]) -> Trial | None:
    """`Store.best` of one store, from its runs, newest first, and the latest trials by config."""
    claim = _claimed(runs, latest)
    return None if claim is None else claim[0]


def decide(
    runs: Sequence[Run], trials: Sequence[Trial], divided: Sequence[frozenset[str]] | None = None
) -> MergeDecision | None:
    """What to make of the picks of several stores; None where all runs are of one, or nothing was
    chosen. `runs` are newest first, `trials` all there are, in the order they were appended."""
    divided = lineages(runs) if divided is None else divided
    if len(divided) < 2:
        return None
    views = [_View(lineage, runs, trials) for lineage in divided]
    claims = _unsuperseded([claim for view in views if (claim := view.claim)])
    by_config: dict[str, list[_Claim]] = {}
    for claim in claims:
        by_config.setdefault(claim.trial.config.id, []).append(claim)
    if not by_config:
        return None
    standing = _unbeaten(by_config, _Evidence(runs, trials))
    wrong = set().union(*(view.wrong for view in views))
    ranked = sorted(
        (min(by_config[id], key=_rank) for id in standing),
        key=lambda claim: (claim.trial.config.id in wrong, _rank(claim)),
    )
    first, *others = (claim.trial for claim in ranked)
    kept = frozenset(trial.id for trial in trials if trial.config.id in by_config)
    return MergeDecision(Pick(first, tuple(others)), kept)


def picked(
    runs: Sequence[Run], trials: Sequence[Trial], latest: Mapping[str, Trial]
) -> Pick | None:
    """`Store.pick`, from all there is of a workload: as for `decide` and `best_of`."""
    decision = decide(runs, trials)
    if decision is not None:
        return decision.pick
    best = best_of(runs, latest)
    return None if best is None else Pick(best)


@dataclass(frozen=True)
class _Claim:
    """What a store that knew no more than `lineage` would call the best. `chooser` is the run
    that chose it, None where it merely has the lowest median; `own` is when this store's own
    newest run in the lineage started."""

    trial: Trial
    chooser: Run | None
    lineage: frozenset[str]
    own: float


class _View:
    """What a store would know that has only these runs."""

    def __init__(
        self, lineage: frozenset[str], runs: Sequence[Run], trials: Sequence[Trial]
    ) -> None:
        every = {run.id for run in runs}
        self._lineage = lineage
        self._runs = [run for run in runs if run.id in lineage]
        self._latest = {
            trial.config.id: trial
            for trial in trials
            # What was measured outside of any run, such as by a verification, is everybody's, but
            # who lost there lost against one store's pick.
            if trial.run_id in lineage
            or (trial.run_id not in every and trial.status is not Status.OUTRACED)
        }

    @property
    def claim(self) -> _Claim | None:
        found = _claimed(self._runs, self._latest)
        if found is None:
            return None
        own = max((run.started for run in self._runs if not run.taken), default=-math.inf)
        return _Claim(*found, self._lineage, own)

    @property
    def wrong(self) -> set[str]:
        """The ids of configs that compute something else."""
        return {id for id, t in self._latest.items() if t.status is Status.WRONG_RESULT}


def _claimed(runs: Iterable[Run], latest: Mapping[str, Trial]) -> tuple[Trial, Run | None] | None:
    newest = next((run for run in runs if run.chose), None)
    if newest is not None and newest.best is not None:
        chosen = latest.get(newest.best.id)
        if chosen is not None and chosen.status is Status.OK and _is_choosable(chosen):
            return chosen, newest
    works = [trial for trial in latest.values() if trial.status is Status.OK]
    ranked = [(median, t) for t in works if (median := usable_median(t)) is not None]
    return (min(ranked, key=lambda pair: pair[0])[1], None) if ranked else None


def _is_choosable(trial: Trial) -> bool:
    """What was timed must have a time; what was only ever chosen has none."""
    return trial.timing is None or usable_median(trial) is not None


def _unsuperseded(claims: Sequence[_Claim]) -> list[_Claim]:
    """Without those whose choice another one was made in knowledge of."""
    return [one for one in claims if not any(_supersedes(other, one) for other in claims)]


def _supersedes(later: _Claim, one: _Claim) -> bool:
    if later.chooser is None or one.chooser is None:
        return False
    return one.chooser.id in later.lineage and later.chooser.id not in one.lineage


def _rank(claim: _Claim) -> tuple[float, bool, float, str]:
    """This store's own pick stays; of others, the one that was chosen first. Neither depends on
    the order in which stores were merged."""
    started = claim.trial.created if claim.chooser is None else claim.chooser.started
    return -claim.own, claim.chooser is None, started, claim.trial.id


def _unbeaten(claims: Mapping[str, Sequence[_Claim]], evidence: _Evidence) -> list[str]:
    """The configs that no other one is known to beat."""
    ids = list(claims)
    pairs = [(one, two) for at, one in enumerate(ids) for two in ids[at + 1 :]]
    orders = {
        (one, two): evidence.agreed(one, _joined(claims[one]), two, _joined(claims[two]))
        for one, two in pairs
    }
    beaten = {two for (_, two), order in orders.items() if order == "first"}
    beaten |= {one for (one, _), order in orders.items() if order == "second"}
    return [id for id in ids if id not in beaten] or ids


def _joined(claims: Sequence[_Claim]) -> frozenset[str]:
    return frozenset().union(*(claim.lineage for claim in claims))


class _Evidence:
    """What each run says of the order of two configs."""

    def __init__(self, runs: Sequence[Run], trials: Sequence[Trial]) -> None:
        self._runs = {run.id: run for run in runs}
        self._trials: dict[str, dict[str, Trial]] = {}
        taken_in = _occasions(trials)
        for trial in trials:
            if trial.timing is None or taken_in[_samples(trial)] == trial.run_id:
                self._trials.setdefault(trial.run_id, {})[trial.config.id] = trial

    def agreed(
        self, one: str, ones: frozenset[str], two: str, twos: frozenset[str]
    ) -> Order | None:
        """The order that runs of both sides have found, and none has contradicted. That both call
        two configs equal is none: beside a load many look equal that are not."""
        said = {id: order for id in ones | twos if (order := self._order(id, one, two))}
        if len(said) < 2 or not (ones & said.keys() and twos & said.keys()):
            return None
        orders = set(said.values())
        return orders.pop() if len(orders) == 1 and "neither" not in orders else None

    def _order(self, run_id: str, one: str, two: str) -> Order | None:
        run, found = self._runs.get(run_id), self._trials.get(run_id, {})
        if run is None or one not in found or two not in found:
            return None
        first, second = found[one], found[two]
        if first.status.failed or second.status.failed:
            both = first.status.failed and second.status.failed
            return None if both else "second" if first.status.failed else "first"
        if first.timing is None or second.timing is None:
            return None
        if not first.timing.comparable(second.timing):
            return None
        return _by_choice(run, first, second) or _by_intervals(first, second)


def _by_choice(run: Run, first: Trial, second: Trial) -> Order | None:
    """By who won where one of them did."""
    if not run.chose or run.best not in (first.config, second.config):
        return None
    loser = second if run.best == first.config else first
    if loser.config in run.equals:
        return "neither"
    if loser.status is not Status.OUTRACED:
        return None
    return "first" if loser is second else "second"


def _by_intervals(first: Trial, second: Trial) -> Order | None:
    assert first.timing is not None
    assert second.timing is not None
    one, two = first.timing.interval_ns, second.timing.interval_ns
    if one is None or two is None:
        return None
    if one[1] < two[0]:
        return "first"
    return "second" if two[1] < one[0] else None


_Samples = tuple[str, Timing | None]


def _samples(trial: Trial) -> _Samples:
    return trial.config.id, trial.timing


def _occasions(trials: Sequence[Trial]) -> dict[_Samples, str]:
    """The run in which samples were taken: a later one may have written them down again, to say
    that their config has lost since."""
    found: dict[_Samples, tuple[float, str]] = {}
    for trial in trials:
        if trial.timing is not None:
            moment = trial.created, trial.run_id
            found[_samples(trial)] = min(moment, found.get(_samples(trial), moment))
    return {samples: run_id for samples, (_, run_id) in found.items()}


def departing(runs: Sequence[Run]) -> tuple[Run, ...]:
    """A store's runs, oldest first, as another store takes them: what their place in the chain
    said is written into `after`."""
    taken = []
    before: tuple[str, ...] = ()
    for run in runs:
        if not run.taken:
            run = replace(run, after=(*before, *_known(run)), taken=True)
            before = (run.id,)
        taken.append(run)
    return tuple(taken)


def lineages(runs: Sequence[Run]) -> list[frozenset[str]]:
    """The ids of the runs, newest first, divided by who knew of whom: each set holds a run that
    no other one knew, and all that this one knew, so that two may overlap. One where nothing was
    ever merged."""
    parents = _parents(runs)
    known = set().union(*parents.values())
    return [_ancestry(tip, parents) for tip in parents if tip not in known]


def placed(run: Run, known: Sequence[Run]) -> Run:
    """The run as a store first keeps it that has the runs `known`, newest first: it knows them
    all, and does not learn of others later."""
    parents = _parents(known)
    met = set().union(*parents.values())
    strangers = [one.id for one in known if one.taken and one.id not in met]
    return replace(run, after=tuple(dict.fromkeys((*run.after, *strangers))))


def _known(run: Run) -> Iterable[str]:
    """A run that chose nothing has not settled anything between those it knew."""
    return run.after if run.taken or run.chose else ()


def _parents(runs: Sequence[Run]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    before: str | None = None
    for run in reversed(runs):
        found[run.id] = set(_known(run))
        if not run.taken:
            found[run.id].update(() if before is None else (before,))
            before = run.id
    return found


def _ancestry(tip: str, parents: dict[str, set[str]]) -> frozenset[str]:
    found: set[str] = set()
    waiting = [tip]
    while waiting:
        id = waiting.pop()
        if id in parents and id not in found:
            found.add(id)
            waiting += parents[id]
    return frozenset(found)
