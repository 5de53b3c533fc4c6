"""A kernel's passport: all that a store and the policy file know of one kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whet.core.config import Config
from whet.core.miss import Argument, Miss
from whet.core.run import chosen_by, speedup_over
from whet.core.workload import Device, Workload
from whet.engine.policy.checking import modules_of
from whet.engine.policy.rules import BUCKETS, Policy
from whet.store import StoreReader, WorkloadSummary

KeyState = Literal["tuned", "unfinished", "missed"]

# Triton compiles a kernel for an address or a number that this divides, and for any other.
_DIVISOR = 16
_LARGEST_I32 = 2**31


@dataclass(frozen=True)
class KernelKey:
    """One key: its pick where it has one, and whether a call of it can be made again."""

    workload: Workload
    state: KeyState
    recorded: bool
    config: Config | None = None
    median_ns: float | None = None
    speedup: float | None = None
    configs: int = 0
    runs: int = 0
    cost_s: float = 0.0
    last: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.workload.id,
            "key": dict(self.workload.key),
            "device": self.workload.device.name,
            "fingerprint": self.workload.fingerprint,
            "state": self.state,
            "recorded": self.recorded,
            "config": None if self.config is None else dict(self.config),
            "median_ns": self.median_ns,
            "speedup": self.speedup,
            "configs": self.configs,
            "runs": self.runs,
            "cost_s": self.cost_s,
            "last": self.last,
        }


@dataclass(frozen=True)
class KernelSource:
    """One version of the source: `places` are `FILE.py:NAME`, the latest first."""

    fingerprint: str
    places: tuple[str, ...]
    captured: tuple[tuple[str, str], ...]
    keys: int


@dataclass(frozen=True)
class PolicyLine:
    """One setting that the policy file has for the kernel, and where it says so."""

    setting: str
    value: str
    where: str


@dataclass(frozen=True)
class Passport:
    """Of `kernel`. `specializations` are what Triton compiles for, each with the number of recorded
    keys that need it. The most recent key and source come first."""

    kernel: str
    sources: tuple[KernelSource, ...]
    modules: tuple[str, ...]
    devices: tuple[Device, ...]
    toolchains: tuple[dict[str, str], ...]
    keys: tuple[KernelKey, ...]
    specializations: tuple[tuple[str, int], ...]
    policy: tuple[PolicyLine, ...]
    policy_file: str
    first: float
    last: float

    def count(self, state: KeyState) -> int:
        return sum(key.state == state for key in self.keys)

    @property
    def cost_s(self) -> float:
        return sum(key.cost_s for key in self.keys)

    @property
    def runs(self) -> int:
        return sum(key.runs for key in self.keys)

    @property
    def picks(self) -> list[tuple[Config, int]]:
        """Each config that is the pick of a key, with how many; the most frequent first."""
        counts = Counter(key.config for key in self.keys if key.config is not None)
        return counts.most_common()

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "sources": [
                {
                    "fingerprint": one.fingerprint,
                    "places": list(one.places),
                    "captured": dict(one.captured),
                    "keys": one.keys,
                }
                for one in self.sources
            ],
            "modules": list(self.modules),
            "devices": [one.name for one in self.devices],
            "toolchains": list(self.toolchains),
            "first_met": self.first,
            "last_met": self.last,
            "keys": [one.to_json() for one in self.keys],
            "specializations": [{"text": text, "keys": n} for text, n in self.specializations],
            "policy_file": self.policy_file or None,
            "policy": [
                {"setting": one.setting, "value": one.value, "where": one.where}
                for one in self.policy
            ],
            "picks": [{"config": dict(config), "keys": n} for config, n in self.picks],
            "cost": {"runs": self.runs, "seconds": self.cost_s},
        }


def passport(
    store: StoreReader,
    known: Sequence[WorkloadSummary],
    calls: Sequence[Miss],
    policy: Policy | None,
) -> Passport:
    """Of one kernel, all of whose workloads and recorded calls these are; not both empty."""
    by_id = {miss.workload.id: miss for miss in calls}
    missing = set(by_id) - {one.workload.id for one in known}
    keys = [_known_key(store, one, one.workload.id in by_id) for one in known]
    keys += [
        KernelKey(by_id[id].workload, "missed", bool(by_id[id].grids), last=by_id[id].at)
        for id in by_id
        if id in missing
    ]
    keys.sort(key=lambda one: -one.last)
    workloads = [key.workload for key in keys]
    kernel, modules = workloads[0].kernel, _modules(calls)
    moments = [*(key.last for key in keys), *(miss.at for miss in calls)]
    moments += [run.started for one in known for run in store.runs(one.workload.id)]
    return Passport(
        kernel=kernel,
        sources=_sources(workloads, by_id),
        modules=modules,
        devices=tuple(dict.fromkeys(one.device for one in workloads)),
        toolchains=_distinct([dict(one.toolchain) for one in workloads]),
        keys=tuple(keys),
        specializations=_specializations(calls),
        policy=_policy_lines(policy, kernel, modules, workloads, calls),
        policy_file="" if policy is None else str(policy.path),
        first=min(moments),
        last=max(moments),
    )


def _known_key(store: StoreReader, one: WorkloadSummary, recorded: bool) -> KernelKey:
    runs = store.runs(one.workload.id)
    speedup = None
    if one.best is not None:
        chose = chosen_by(runs, one.best.config)
        config = next((r.first for r in (chose, *runs) if r is not None and r.first), None)
        first = None if config is None else store.latest(one.workload.id, config.id)
        speedup = speedup_over(first, one.best, chose)
    return KernelKey(
        workload=one.workload,
        state="tuned" if any(run.chose for run in runs) else "unfinished",
        recorded=recorded,
        config=one.best_config,
        median_ns=one.median_ns,
        speedup=speedup,
        configs=one.configs,
        runs=len(runs),
        cost_s=sum(run.wall_s for run in runs),
        last=one.active,
    )


def _sources(workloads: Sequence[Workload], calls: dict[str, Miss]) -> tuple[KernelSource, ...]:
    found: dict[str, list[Workload]] = {}
    for workload in workloads:
        found.setdefault(workload.fingerprint, []).append(workload)
    sources = []
    for fingerprint, several in found.items():
        met = [calls[one.id].where for one in several if one.id in calls]
        places = [place for one in several for place in one.origin.places]
        captured = several[0].origin.captured
        sources.append(
            KernelSource(
                fingerprint,
                tuple(dict.fromkeys(filter(None, (*places, *met)))),
                tuple((name, captured[name]) for name in captured),
                len(several),
            )
        )
    return tuple(sources)


def _modules(calls: Sequence[Miss]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(miss.module for miss in calls if miss.module))


def _distinct(several: Sequence[dict[str, str]]) -> tuple[dict[str, str], ...]:
    return tuple(dict(one) for one in dict.fromkeys(tuple(each.items()) for each in several))


def _policy_lines(
    policy: Policy | None,
    kernel: str,
    modules: Sequence[str],
    workloads: Sequence[Workload],
    calls: Sequence[Miss],
) -> tuple[PolicyLine, ...]:
    """Where the module was not recorded, it goes by all names that its file may have. A bucket of
    what is in no key is said to be skipped."""
    if policy is None:
        return ()
    places = [place for one in workloads for place in one.origin.places]
    places += [miss.where for miss in calls if miss.where]
    names = modules or [name for place in places for name in modules_of(place)]
    every = (*workloads, *(miss.workload for miss in calls))
    keys = {key for one in every for key in one.key if "." not in key}
    lines = []
    for setting, ruling in policy.rulings(kernel, names).items():
        text = _value_text(ruling.value)
        if keys and setting.startswith(BUCKETS) and setting.removeprefix(BUCKETS) not in keys:
            text += f", skipped: not in its key ({', '.join(sorted(keys))})"
        lines.append(PolicyLine(setting, text, policy.place(ruling.rule, setting)))
    return tuple(lines)


def _value_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ", ".join(f"[{one}]" if isinstance(one, Config) else str(one) for one in value)
    return str(value)


def _specializations(calls: Sequence[Miss]) -> tuple[tuple[str, int], ...]:
    counts = Counter(specialization(miss.arguments) for miss in calls if miss.grids)
    return tuple(counts.most_common())


def specialization(arguments: Sequence[Argument]) -> str:
    """`x *bf16:16, n i32:16, BT=64` as Triton compiles it: 16 divides what has `:16`, and a value
    after `=` is compiled in."""
    return ", ".join(map(_compiled, arguments))


def _compiled(one: Argument) -> str:
    if one.dtype:
        kind = _short(one.dtype)
        aligned = one.placement is not None and one.placement.aligned % _DIVISOR == 0
        return f"{one.name} *{kind}:{_DIVISOR}" if aligned else f"{one.name} *{kind}"
    value = one.value
    if one.type == "float" and one.compiled != "constant":
        return f"{one.name} fp32"
    if one.compiled == "constant" or value is None or isinstance(value, bool | str | tuple):
        return f"{one.name}={value}"
    if isinstance(value, float):
        return f"{one.name}={value}"
    kind = "i32" if -_LARGEST_I32 <= value < _LARGEST_I32 else "i64"
    if one.compiled == "plain":
        return f"{one.name} {kind}"
    if value == 1:
        return f"{one.name}=1"
    return f"{one.name} {kind}:{_DIVISOR}" if value % _DIVISOR == 0 else f"{one.name} {kind}"


def _short(dtype: str) -> str:
    """`torch.bfloat16` is `bf16`."""
    name = dtype.removeprefix("torch.")
    for long, short in (("bfloat", "bf"), ("float", "fp"), ("uint", "u"), ("int", "i")):
        if name.startswith(long):
            return short + name.removeprefix(long)
    return "i1" if name == "bool" else name
