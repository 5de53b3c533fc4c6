"""What an agent may know of a store: dictionaries of bounded size, for a reader who has never heard
of whet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from whet.core.budget import Budget
from whet.core.config import Config, frozen_values
from whet.core.errors import UsageError, did_you_mean
from whet.core.run import Run, chosen_by, speedup_over
from whet.core.space import Space, read_parameters
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.engine.recall import NEAREST
from whet.explorer.answers import occupancy_limits, runs_json, timeline_json, trial_json
from whet.explorer.importance import importance
from whet.explorer.library import Library
from whet.explorer.stored import StoreSubject
from whet.explorer.subject import NotThereError
from whet.replay.asking import Told, config_in, space_of
from whet.search import STRATEGIES, make_strategy
from whet.store import StoreReader

MOST_LISTED = 100
MOST_TEXT = 12_000
# Names, values and errors of a store may be of any length.
LONGEST = 600
MOST_ITEMS = 400
_LONGER = {"text": MOST_TEXT, "error": 4000}
MOST_SUGGESTED = 50
MOST_CONFIGS = 20_000

STATUSES = {
    "ok": "it works, and was measured to the end",
    "outraced": "it works, and was dropped as soon as it could no longer be the fastest",
    "constraint": "refused before it was built, from its numbers alone",
    "resources": "it needs more shared memory, registers or threads than the device has",
    "build_error": "the compiler failed",
    "build_timeout": "the compiler took longer than its limit",
    "run_error": "it crashed, or raised an error",
    "run_timeout": "it ran longer than its limit",
    "wrong_result": "it ran, and its result is not the reference's",
}


def clipped(value: Any, longest: int = LONGEST) -> Any:
    """The same with long texts and lists cut, and how long they were."""
    if isinstance(value, str):
        more = len(value) - longest
        return value if more <= 0 else f"{value[:longest]}… ({more:,} more characters)"
    if isinstance(value, Mapping):
        return {
            clipped(str(name), 100): clipped(one, _LONGER.get(name, longest))
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        cut = [clipped(one, longest) for one in value[:MOST_ITEMS]]
        more = len(value) - len(cut)
        return [*cut, f"… ({more:,} more)"] if more else cut
    return value


def paged(items: Sequence[Any], limit: int, offset: int) -> dict[str, Any]:
    """`next_offset` is what to ask for next, null at the end."""
    if not 1 <= limit <= MOST_LISTED or offset < 0:
        raise UsageError(f"limit is from 1 to {MOST_LISTED}, and offset 0 or more")
    end = offset + limit
    return {
        "total": len(items),
        "next_offset": end if end < len(items) else None,
        "items": list(items[offset:end]),
    }


def text_page(text: str, offset: int) -> dict[str, Any]:
    end = offset + MOST_TEXT
    return {
        "characters": len(text),
        "next_offset": end if end < len(text) else None,
        "text": text[max(0, offset) : end],
    }


class Reader:
    """Answers from one store, as it is at the moment of each question."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def kernels(self, kernel: str, limit: int, offset: int) -> dict[str, Any]:
        lines = [one for one in self._library.summaries() if kernel in ("", one["kernel"])]
        if kernel and not lines:
            known = {one["kernel"] for one in self._library.summaries()}
            raise NotThereError(f"no kernel '{kernel}'{did_you_mean(kernel, sorted(known))}")
        return paged([_line(one) for one in lines], limit, offset)

    def workload(self, id: str) -> dict[str, Any]:
        subject = self._subject(id)
        known, runs = subject.summary(None), subject.runs()
        coverage = next((run.coverage for run in runs if run.coverage is not None), None)
        columns = subject.read().columns
        return {
            **_line(known),
            "device": subject.workload.device.to_json(),
            "toolchain": dict(subject.workload.toolchain),
            "source": list(subject.workload.origin.places),
            "first": known["first"],
            "speedup_over_first": known["speedup"],
            "space": None if coverage is None else coverage.to_json(),
            "parameters": _parameters(self._latest(subject)),
            "importance": importance(columns) if columns.rows else [],
            "runs": runs_json(subject)[:5],
            "tuning_seconds": known["cost_s"],
        }

    def trials(self, id: str, status: str, sort: str, limit: int, offset: int) -> dict[str, Any]:
        if status and status not in STATUSES:
            raise UsageError(f"no status '{status}'{did_you_mean(status, STATUSES)}")
        if sort not in ("fastest", "newest"):
            raise UsageError("sort is fastest or newest")
        found = [t for t in self._latest(self._subject(id)) if status in ("", str(t.status))]
        if sort == "newest":
            found.sort(key=lambda trial: -trial.created)
        else:
            found.sort(key=lambda t: (t.status.failed, t.median_ns or 0.0, str(t.status)))
        return paged([_brief(trial) for trial in found], limit, offset)

    def trial(self, id: str, config_id: str) -> dict[str, Any]:
        subject, trial = self._trial(id, config_id)
        told = trial_json(subject, -1, trial)
        del told["row"]
        samples = told.pop("samples")
        return {
            **told,
            "meaning": STATUSES[str(trial.status)],
            "samples": samples[:50],
            "limits": occupancy_limits(trial, subject.workload.device),
            "ir": list(subject.stages(trial)),
        }

    def code(self, id: str, config_id: str, stage: str, offset: int) -> dict[str, Any]:
        subject, trial = self._trial(id, config_id)
        kept = subject.stages(trial)
        if stage not in kept:
            what = f"there is {', '.join(kept)}" if kept else "tune with --keep-ir to keep some"
            raise NotThereError(f"no intermediate code '{clipped(stage)}' was kept of it; {what}")
        return text_page(kept[stage], offset)

    def costs(self, id: str, run_id: str) -> dict[str, Any]:
        subject = self._subject(id)
        runs = subject.runs()
        if not runs:
            raise NotThereError("nobody has tuned this workload here; its results were imported")
        told = timeline_json(subject, run_id or runs[0].id)
        del told["spans"]
        return told

    def verdict(self, id: str, config_id: str) -> dict[str, Any]:
        subject = self._subject(id)
        pick = self._store.pick(subject.id)
        if pick is None:
            failed = Counter(str(trial.status) for trial in self._latest(subject))
            raise NotThereError(
                f"there is no pick: no config works yet; outcomes so far: {dict(failed)}"
            )
        runs, best = subject.runs(), pick.trial
        chose = chosen_by(runs, best.config)
        told = {
            "pick": _brief(best),
            "rivals": [_brief(trial) for trial in pick.rivals],
            "why": _why(self._store, subject.workload, runs, chose, best, len(pick.rivals)),
        }
        if config_id and config_id != best.config.id:
            trial = self._trial(id, config_id)[1]
            told |= {"config": _brief(trial), "why_not": _why_not(trial, best, chose)}
        return told

    def suggest(
        self,
        id: str,
        space: Any,
        kernel: str,
        key: Mapping[str, Any],
        results: Sequence[Any],
        count: int,
        search: str,
        seed: int,
    ) -> dict[str, Any]:
        if search not in STRATEGIES:
            raise UsageError(f"no strategy '{search}'{did_you_mean(search, STRATEGIES)}")
        if not 1 <= count <= MOST_SUGGESTED:
            raise UsageError(f"count is from 1 to {MOST_SUGGESTED}")
        known: list[Trial] = []
        if id:
            subject = self._subject(id)
            kernel, key = subject.workload.kernel, subject.workload.key
            known = self._latest(subject)
        if space is not None:
            searched = space_of(space)
        elif known:
            searched = Space(read_parameters([trial.config for trial in known]))
        else:
            raise UsageError("give the id of a workload with results, or a space")

        def found(data: Mapping[str, Any]) -> Config:
            return config_in(searched, data.get("config"))

        told = [Told.read(one, found) for one in results]
        strategy = make_strategy(
            search,
            searched,
            seed,
            self._prior(kernel, key, id, searched),
            whole=False,
        )
        strategy.tell([trial for trial in known if trial.config in searched])
        strategy.tell([one.trial("") for one in told])
        configs = strategy.ask(count)
        return {
            "configs": [{"id": one.id, "config": dict(one)} for one in configs],
            "space_size": searched.count,
            "already_known": len({t.config for t in known} | {one.config for one in told}),
            "note": ""
            if space is not None
            else "the space has every combination of the values that were tried; some may be "
            "invalid, which the store does not know",
        }

    def _prior(self, kernel: str, key: Mapping[str, Any], id: str, space: Space) -> Any:
        """What other sizes of the kernel say, as far as the store has them."""
        others = [
            one.workload
            for one in (self._store.workloads(kernel) if kernel else [])
            if one.ok and not (id and one.workload.id.startswith(id))
        ]
        if not others:
            return None
        from whet.learn.keys import key_distance
        from whet.learn.prior import prior_for

        mine = dict(frozen_values(key))
        others.sort(key=lambda one: key_distance(mine, dict(one.key)))
        told = [(dict(one.key), self._store.trials(one.id)) for one in others[:NEAREST]]
        return prior_for(mine, space, told)

    @property
    def _store(self) -> StoreReader:
        store = self._library.store
        assert store is not None
        return store

    def _subject(self, id: str) -> StoreSubject:
        """By its id, the start of one, or a kernel's name, where that says which."""
        every = [one for one in self._library.subjects() if isinstance(one, StoreSubject)]
        found = [one for one in every if id and one.id.startswith(id)]
        found = found or [one for one in every if one.workload.kernel == id]
        if len(found) == 1:
            return found[0]
        if found:
            some = ", ".join(f"{one.id} ({one.workload})" for one in found[:8])
            raise UsageError(f"'{clipped(id, 80)}' is {len(found)} workloads; give an id: {some}")
        if not every:
            raise NotThereError(f"the store {self._library.about()['store']} has no results yet")
        names = [one.workload.kernel for one in every]
        hint = did_you_mean(id[:80], dict.fromkeys(names[:20]))
        raise NotThereError(f"no workload '{clipped(id, 80)}'{hint}; list_kernels has all")

    def _trial(self, id: str, config_id: str) -> tuple[StoreSubject, Trial]:
        subject = self._subject(id)
        trial = self._store.latest(subject.id, config_id)
        if trial is None:
            raise NotThereError(
                f"no config with the id '{clipped(config_id, 80)}' was tried; list_trials has all"
            )
        return subject, trial

    def _latest(self, subject: StoreSubject) -> list[Trial]:
        if subject.known.configs > MOST_CONFIGS:
            raise UsageError(
                f"{subject.known.configs:,} configs are more than this server reads at once "
                f"({MOST_CONFIGS:,}); use 'whet show trials' or 'whet explore'"
            )
        return self._store.trials(subject.id)


def _line(known: Mapping[str, Any]) -> dict[str, Any]:
    """Of a line of the explorer's list, what an agent needs to choose one."""
    best = known["best"]
    return {
        "workload": known["id"],
        "kernel": known["kernel"],
        "key": known["key"],
        "device": known["device"],
        "best": best and {name: best[name] for name in ("config", "config_id", "ns")},
        "speedup_over_first": known["speedup"],
        "outcomes": known["trials"],
        "space_size": known["space_size"],
        "provisional": known.get("provisional", False),
        "contested": known.get("contested", 0),
        "to_go_on": known["next"],
        "running": known.get("running", False),
    }


def _brief(trial: Trial) -> dict[str, Any]:
    return {
        "config_id": trial.config.id,
        "config": dict(trial.config),
        "status": str(trial.status),
        "median_ns": trial.median_ns,
        "error": clipped(trial.error, 200),
    }


def _parameters(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Each with its values, how often each was tried and failed, and the fastest with it."""
    found = []
    for parameter in read_parameters([trial.config for trial in trials]):
        values = []
        for value in parameter.values:
            having = [t for t in trials if _has(t.config, parameter.name, value)]
            times = [t.median_ns for t in having if t.status.measured and t.median_ns]
            values.append(
                {
                    "value": value,
                    "tried": len(having),
                    "failed": sum(t.status.failed for t in having),
                    "fastest_ns": min(times, default=None),
                }
            )
        found.append({"name": parameter.name, "values": values})
    return found


def _has(config: Config, name: str, value: Any) -> bool:
    return name in config and type(config[name]) is type(value) and config[name] == value


def _why(
    store: StoreReader,
    workload: Workload,
    runs: Sequence[Run],
    chose: Run | None,
    best: Trial,
    rivals: int,
) -> list[str]:
    """Sentences, the first of which is the answer."""
    if chose is None:
        said = ["It has the lowest median of all that is known; no finished run chose it."]
    else:
        how = "all configs" if chose.exhaustive else f"{chose.trials:,} configs"
        said = [
            f"The run {chose.id[:8]} ({chose.search}, {how} tried) chose it."
            if chose.search in ("import",) or best.timing is None or best.timing.foreign is not None
            else f"The run {chose.id[:8]} ({chose.search}, {how} tried) chose it, after comparing "
            "the finalists side by side."
        ]
        first = None if chose.first is None else store.latest(workload.id, chose.first.id)
        gain = speedup_over(first, best, chose)
        if gain is not None and chose.first != best.config:
            measured = "in turns with it" if chose.paired_speedup else "at other moments"
            said.append(f"It is {gain:.3g} times as fast as the author's first config, {measured}.")
        if chose.equals:
            said.append(f"{len(chose.equals)} configs could not be told apart from it.")
        if chose.provisional:
            said.append("It is provisional: the budget ended before it was confirmed.")
    if rivals:
        said.append("It is contested: stores that were merged disagree; tuning again decides.")
    timing = best.timing
    if timing is not None and timing.foreign is not None:
        said.append("Somebody else measured it, not whet.")
    if timing is not None and timing.quality != "clean":
        said.append(f"Its timing is {timing.quality.replace('_', ' ')}, so take it with care.")
    coverage = next((run.coverage for run in runs if run.coverage is not None), None)
    return [*said, *([] if coverage is None else [f"{coverage}."])]


def _why_not(trial: Trial, best: Trial, chose: Run | None) -> list[str]:
    said = [f"{trial.status}: {STATUSES[str(trial.status)]}."]
    if trial.error:
        said.append(f"It said: {clipped(trial.error)}")
    if trial.limit is not None:
        limit = trial.limit
        said.append(f"The limit was {limit.kind} = {limit.value:g}; a higher one is a new try.")
    if trial.status.measured and trial.median_ns and best.median_ns:
        ratio = trial.median_ns / best.median_ns
        said.append(f"Its median is {ratio:.3f} times the pick's.")
        if chose is not None and trial.config in chose.equals:
            said.append("Side by side the two could not be told apart; the pick was kept.")
        elif ratio < 1:
            said.append("Medians are of different moments; it did not win side by side.")
    both = trial.timing is not None and best.timing is not None
    if both and not trial.timing.taken_like(best.timing):  # type: ignore[union-attr, arg-type]
        said.append("The two were measured in different ways, which are never compared.")
    return said


def budget_json(budget: Budget) -> dict[str, Any]:
    return {**budget.to_json(), "text": str(budget)}
