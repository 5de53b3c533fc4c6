"""A config for a key that was never tuned, from what is known of the same kernel at other keys.

Why it is so: docs/decisions/untuned-calls.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.run import Choice
from whet.core.space import Space
from whet.core.timing import Method
from whet.core.workload import Workload
from whet.engine.recall import timed_like
from whet.engine.target import Target
from whet.learn.costmodel import (
    ENOUGH_KEYS,
    SURE,
    CostModel,
    Extra,
    ModelPick,
    Tuned,
    model_picks,
    nearest_confidence,
    nearest_first,
)
from whet.learn.keys import key_parts, labels_of
from whet.store import StoreReader, WorkloadSummary
from whet.store.beside import MOST_BYTES, FolderModels
from whet.store.protocol import Models

# Keys a model is fitted to, those where most was tried.
MOST_KEYS = 64
# From so many keys on, what is known of a kernel is listed anew only after this time.
MANY_KEYS, KEPT_S = 1_000, 60.0
# Configs a model is asked about; of a larger space, known good ones and what is around them.
MOST_CONFIGS = 2_000
# What a result tuned under other circumstances is worth here.
_WORTH = {"toolchain": 0.9, "fingerprint": 0.7, "device": 0.5}


@dataclass(frozen=True)
class Family:
    """Tuned workloads of one kernel, source, device and toolchain, whose keys differ in numbers
    only, and in what these differ from the workload that was asked for."""

    id: str
    known: tuple[WorkloadSummary, ...]
    differs: tuple[str, ...] = ()

    @property
    def worth(self) -> float:
        worth = 1.0
        for part in self.differs:
            worth *= _WORTH[part]
        return worth

    @property
    def lessons(self) -> tuple[WorkloadSummary, ...]:
        """What a model is to be taught with."""
        return tuple(
            sorted(self.known, key=lambda one: (-one.configs, one.workload.id))[:MOST_KEYS]
        )

    def covered_by(self, kept: KeptModel) -> bool:
        """Whether a model, though not of the latest trials, has seen half of what matters."""
        seen = sum(2 * kept.taught.get(one.workload.id, 0) >= one.trials > 0 for one in self.known)
        return 2 * seen >= min(len(self.known), MOST_KEYS)


@dataclass(frozen=True)
class Inheritance:
    """What may be taken over: the model's picks, and the bests of other keys with their distances,
    the nearest first. `doubt` says why there are no picks."""

    family: Family
    picks: tuple[ModelPick, ...]
    nearest: tuple[tuple[float, Tuned], ...]
    doubt: str = ""

    @property
    def sure(self) -> bool:
        return bool(self.picks) and self.picks[0].confidence >= SURE


def inherited(
    target: Target,
    store: StoreReader,
    *,
    workload: Workload | None = None,
    models: Models | None = None,
    fit: bool = False,
) -> Choice | None:
    """The model's pick where it is sure enough, else the best of the nearest key; None where
    nothing is known of the kernel at keys with the same dtypes.

    Measures nothing. Without `fit` only a model that is kept is used, since fitting one takes
    seconds; with it, one that is missing or not of the latest trials is fitted and kept.
    """
    found = _inheritance(target, store, workload or target.workload(), models, fit, most=1)
    if found is None:
        return None
    family = found.family
    caveat = f"; tuned with a different {' and '.join(family.differs)}" if family.differs else ""
    many = f"{len(family.known)} tuned key{'s' if len(family.known) > 1 else ''}"
    if found.sure:
        pick = found.picks[0]
        reason = f"predicted to be the fastest by a cost model of {many}{caveat}"
        return Choice(pick.config, "model", pick.confidence * family.worth, reason)
    if not found.nearest:
        return None
    away, nearest = found.nearest[0]
    reason = f"the best at {_sizes(nearest)}, the nearest of {many} ({away:.1f} doublings away)"
    doubt = found.doubt or "the cost model is not confident here"
    confidence = nearest_confidence(away) * family.worth
    return Choice(nearest.best, "nearest", confidence, f"{reason}{caveat}; {doubt}")


# What the best of a key loses at another one is about this share for one doubling between them, and
# more with the square of it: 9, 32, 59 and 86 % for one to four, over the table h200-gemm-576.
_LOSS = 0.09

# For want of a run that says so.
_TUNING_S = 3.0


@dataclass(frozen=True)
class StandIn:
    """The best of the nearest key, in place of a tuning, and how many calls it may serve until one
    would have paid."""

    config: Config
    calls: int
    reason: str


def stand_in(target: Target, store: StoreReader) -> StandIn | None:
    """From this device, source and toolchain only. None where nothing is known of another key."""
    found = _inheritance(target, store, target.workload(), {}, fit=False, most=0)
    if found is None or not found.nearest or found.family.differs:
        return None
    away, nearest = found.nearest[0]
    known = next(one for one in found.family.known if one.workload.key == nearest.key)
    spent_s = max((run.wall_s for run in store.runs(known.workload.id)), default=0.0) or _TUNING_S
    lost_s = 1e-9 * (known.median_ns or 1.0) * min(1.0, _LOSS * max(away, 0.5) ** 2)
    reason = f"the best at {_sizes(nearest)}, {away:.1f} doublings away, until a tuning would pay"
    return StandIn(nearest.best, max(1, math.ceil(spent_s / lost_s)), reason)


def inheritance_candidates(
    target: Target,
    store: StoreReader,
    n: int,
    *,
    workload: Workload | None = None,
    models: Models | None = None,
    fit: bool = False,
) -> list[Config]:
    """At most n configs worth measuring at a key that was never tuned, the most promising first;
    `fit` as for `inherited`."""
    found = _inheritance(target, store, workload or target.workload(), models, fit, most=n)
    if found is None:
        return []
    expected = [pick.config for pick in found.picks]
    proven = [tuned.best for _, tuned in found.nearest]
    # An unsure model gets every place but the first.
    ordered = [*expected, *proven] if found.sure else [*proven[:1], *expected, *proven]
    return list(dict.fromkeys(ordered))[:n]


def refresh_models(
    store: StoreReader, kernels: Iterable[str] | None = None, models: Models | None = None
) -> int:
    """Fits and keeps a model for every family of these kernels, None for all, that has changed
    since; says how many were fitted. Takes seconds each. None are where there is no scikit-learn.
    """
    names = None if kernels is None else set(kernels)
    groups: dict[str, list[WorkloadSummary]] = {}
    for one in store.workloads():
        if one.best is None or not timed_like(one.best, None):
            continue
        if names is None or one.workload.kernel in names:
            id = _family_id(one.workload, labels_of(one.workload.key))
            groups.setdefault(id, []).append(one)
    models = models_beside(store) if models is None else models
    before = {id: models.get(id) for id in groups}
    for id, known in groups.items():
        family = Family(id, tuple(known))
        if len(known) >= ENOUGH_KEYS:
            lessons = family.lessons
            tried = [trial.config for one in lessons for trial in store.trials(one.workload.id)]
            _fitted(Space(list(dict.fromkeys(tried))), None, store, family, models)
    return sum(models.get(id) != text for id, text in before.items())


def family_of(
    store: StoreReader, workload: Workload, *, method: Method | None = None, itself: bool = False
) -> Family | None:
    """Those that differ least from `workload` in circumstances, the larger family of two alike.

    Another dtype, or whatever else in a key is not a number, is another family, and what was timed
    in another way than by `method` belongs to none. `itself` says whether the workload may be a
    member.
    """
    labels = labels_of(workload.key)
    groups: dict[str, list[WorkloadSummary]] = {}
    for one in _listed(store, workload.kernel):
        summary = one.summary
        if summary.workload.id == workload.id and not itself:
            continue
        if summary.best is None or not timed_like(summary.best, method):
            continue
        if one.labels == labels:
            groups.setdefault(one.family, []).append(summary)
    families = [
        Family(id, tuple(known), _differs(workload, known[0].workload))
        for id, known in groups.items()
    ]
    return max(families, key=lambda one: (one.worth, len(one.known), one.id), default=None)


@dataclass(frozen=True)
class _Listed:
    summary: WorkloadSummary
    labels: Mapping[str, Any]
    family: str


_kept: dict[tuple[str, str], tuple[float, list[_Listed]]] = {}


def _listed(store: StoreReader, kernel: str) -> list[_Listed]:
    """All that is known of a kernel. Listing thousands of keys takes seconds, and what they have to
    teach changes slowly: it is kept for a while."""
    place = (store.location, kernel)
    until, listed = _kept.get(place, (0.0, []))
    if time.monotonic() < until:
        return listed
    listed = []
    for summary in store.workloads(kernel):
        labels = labels_of(summary.workload.key)
        listed.append(_Listed(summary, labels, _family_id(summary.workload, labels)))
    if len(listed) >= MANY_KEYS and store.location != ":memory:":
        _kept.clear()
        _kept[place] = time.monotonic() + KEPT_S, listed
    return listed


def _inheritance(
    target: Target,
    store: StoreReader,
    workload: Workload,
    models: Models | None,
    fit: bool,
    most: int,
) -> Inheritance | None:
    family = family_of(store, workload, method=target.method)
    if family is None:
        return None
    tuned = [Tuned(one.workload.key, one.best.config) for one in family.known if one.best]
    ranked = nearest_first(workload.key, tuned)
    usable = tuple(pair for pair in ranked if _allowed(target, pair[1].best))
    models = models_beside(store) if models is None else models
    model, doubt = _model(target, store, family, models, fit)
    picks: Iterator[ModelPick] = iter(())
    if model is not None:
        configs = _choices(target.space, [one.best for _, one in ranked])
        promising = model_picks(model, workload.key, configs, ranked[0][0])
        picks = (pick for pick in promising if target.reject(pick.config) is None)
    return Inheritance(family, tuple(islice(picks, most)), usable, doubt)


def _model(
    target: Target, store: StoreReader, family: Family, models: Models, fit: bool
) -> tuple[CostModel | None, str]:
    """Or why there is none."""
    if len(family.known) < ENOUGH_KEYS:
        return None, f"fewer than {ENOUGH_KEYS} keys are too few for a cost model"
    kept = _fitted(target.space, target.features, store, family, models) if fit else None
    if kept is None:
        text = models.get(family.id)
        if text is None:
            return None, "there is no stored cost model"
        try:
            kept = read_model(text)
        except ModelError as error:
            return None, str(error)
    if not family.covered_by(kept):
        return None, "the stored cost model is older than most of them"
    return CostModel(kept.model.columns, kept.model.trees, target.features), ""


def _fitted(
    space: Space, features: Extra | None, store: StoreReader, family: Family, models: Models
) -> KeptModel | None:
    """The one that is kept, where nothing has changed since."""
    if len(family.known) < ENOUGH_KEYS:
        return None
    taught = {one.workload.id: one.trials for one in family.lessons}
    with suppress(KeyError, ModelError):
        kept = read_model(models[family.id])
        if kept.taught == taught:
            return kept
    lessons = [(one.workload.key, store.trials(one.workload.id)) for one in family.lessons]
    try:
        model = CostModel.fitted(space, lessons, features=features)
    except UsageError:
        return None  # no scikit-learn
    if model is None:
        return None
    kept = KeptModel(family.known[0].workload.kernel, taught, model)
    with suppress(OSError):  # it can be fitted again
        models[family.id] = kept.to_text()
    return kept


def _choices(space: Space, bests: list[Config]) -> list[Config]:
    if space.is_small(MOST_CONFIGS):
        return list(space)
    around = (near for best in bests if best in space for near in (best, *space.neighbours(best)))
    return list(dict.fromkeys(islice(around, MOST_CONFIGS)))


def _allowed(target: Target, config: Config) -> bool:
    return config in target.space and target.reject(config) is None


def _family_id(workload: Workload, labels: Mapping[str, Any]) -> str:
    identity = [
        workload.kernel,
        workload.fingerprint,
        workload.device.name,
        dict(workload.toolchain),
        labels,
    ]
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _differs(asked: Workload, known: Workload) -> tuple[str, ...]:
    same = {
        "device": asked.device.name == known.device.name,
        "fingerprint": asked.fingerprint == known.fingerprint,
        "toolchain": asked.toolchain == known.toolchain,
    }
    return tuple(part for part, equal in same.items() if not equal)


def _sizes(tuned: Tuned) -> str:
    numbers = key_parts(tuned.key)[0]
    return ", ".join(f"{name}={size:.12g}" for name, size in numbers.items()) or "the same key"


FORMAT, VERSION = "whet-model", 1

__all__ = ["FolderModels", "KeptModel", "ModelError", "Models", "models_beside", "read_model"]


class ModelError(UsageError):
    """A text that is no model of ours, or a damaged one."""


@dataclass(frozen=True, eq=False)
class KeptModel:
    """`taught` has the workloads it was fitted to, and how many trials each had then."""

    kernel: str
    taught: Mapping[str, int]
    model: CostModel

    def to_text(self) -> str:
        data = {
            "format": FORMAT,
            "v": VERSION,
            "kernel": self.kernel,
            "taught": dict(self.taught),
            "model": self.model.to_json(),
        }
        return json.dumps(data, separators=(",", ":"))


@lru_cache(maxsize=8)
def read_model(text: str) -> KeptModel:
    """A `ModelError` says in one line what is wrong with the text. Nothing in it is executed."""
    try:
        if len(text) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"it is not a {FORMAT}")
        if data.get("v") != VERSION:
            raise ValueError(f"its version is not {VERSION}")
        kernel = data.get("kernel")
        if not isinstance(kernel, str):
            raise ValueError("it does not name its kernel")
        return KeptModel(
            kernel, _counts(data.get("taught")), CostModel.from_json(data.get("model"))
        )
    except (ValueError, RecursionError) as error:
        first = str(error).partition("\n")[0][:200]
        raise ModelError(f"cannot use the cost model: {first}; delete it or tune again") from None


def _counts(taught: Any) -> dict[str, int]:
    if not isinstance(taught, dict) or not all(type(one) is int for one in taught.values()):
        raise ValueError("it does not list its training data")
    return taught


def models_beside(store: StoreReader) -> Models:
    """Those that are kept with a store, and with the bundle under it; for a store that keeps none
    an empty mapping."""
    return store.models
