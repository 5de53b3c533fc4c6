"""Which kernels `whet show` was asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whet.cli.arguments.reading import NothingKnownError, open_known
from whet.cli.arguments.sources import known_names, named
from whet.core.errors import UsageError, did_you_mean
from whet.core.miss import Miss
from whet.core.workload import Workload
from whet.engine.policy.checking import modules_of
from whet.engine.policy.finding import current_policy
from whet.engine.review.passport import Passport, passport


def passports(name: str, store: str | None) -> list[Passport]:
    """One for each kernel that goes by the name: its own, `FILE.py:NAME` or `MODULE:NAME`; empty
    where that may be the name of a workload. Raises `UsageError` for a store that knows kernels by
    recorded calls alone, and none of this name."""
    try:
        with open_known(store) as opened:
            known, calls = opened.workloads(), opened.missed(tuned=True)
            every = [one.workload for one in known] + [_met(miss) for miss in calls]
            ids = _named(name, every, calls)
            kernels = dict.fromkeys(one.kernel for one in every if one.id in ids)
            if every and not known and not kernels:
                hint = did_you_mean(name, known_names(every))
                raise UsageError(f"no recorded call of kernel '{name}'{hint}")
            return [
                passport(
                    opened,
                    [one for one in known if one.workload.kernel == kernel],
                    [miss for miss in calls if miss.workload.kernel == kernel],
                    current_policy(),
                )
                for kernel in kernels
            ]
    except NothingKnownError:
        return []


def _met(miss: Miss) -> Workload:
    """With where it was met, which a finished run would have written down."""
    return replace(miss.workload, origin=miss.workload.origin.at(miss.where))


def _named(name: str, every: Sequence[Workload], calls: Sequence[Miss]) -> set[str]:
    module, _, kernel = name.rpartition(":")
    if not module or module.endswith(".py"):
        return named(name, every)
    modules: dict[str, set[str]] = {}
    for miss in calls:
        modules.setdefault(miss.workload.id, set()).add(miss.module)
    return {
        one.id
        for one in every
        if one.kernel == kernel
        and (
            module in modules.get(one.id, ())
            or any(module in modules_of(place) for place in one.origin.places)
        )
    }
