"""What the policy file says about a kernel, put in place before the kernel is first used."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from triton.runtime import autotuner as stock

from whet.core.buckets import Buckets
from whet.core.config import Config
from whet.core.errors import SettingsError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.engine.log import say_once
from whet.engine.policy.finding import current_policy
from whet.engine.settings import Settings, resolve_settings, setting_field
from whet.targets.triton import device
from whet.targets.triton.keys import plain_config

if TYPE_CHECKING:
    from whet.engine.policy.rules import Policy, Ruling


def settings_for(tuner: Any) -> Settings:
    """The process's settings, with what the policy says about this kernel."""
    settings = resolve_settings().settings
    applied: AppliedPolicy | None = getattr(tuner, "whet_policy", None)
    return replace(settings, **applied.overrides) if applied and applied.overrides else settings


def timing_of(tuner: Any) -> tuple[int, Literal["cold", "warm"], int | None, bool]:
    """What `device.timer` takes: the device, the state of its L2, how that is cleared, and whether
    launches are timed as CUDA graphs."""
    settings = settings_for(tuner)
    graph = bool(tuner.use_cuda_graph) or settings.cuda_graph
    return device.current_index(), settings.l2, settings.l2_bytes, graph


def apply_policy(tuner: Any, flags: Collection[str] = ()) -> None:
    """Once for each kernel. `flags` are settings that a command was given, which outrank rules.

    Raises `SettingsError` for a file that is wrong, and for a rule that names this kernel and does
    not fit it.
    """
    with tuner._tuning:
        if not tuner.whet_policy_due:
            return
        policy = current_policy()
        if policy is not None:
            apply_rules(tuner, policy, flags)
        tuner.whet_policy_due = False


_NONE_LEFT = "none of its configs would be left"
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


@dataclass(frozen=True)
class Misfit:
    """What a rule asks for that a kernel cannot have. `keys` are in its key, where that is why."""

    kernel: str
    setting: str
    ruling: Ruling
    why: str
    keys: tuple[str, ...] = ()

    def text(self, policy: Policy) -> str:
        place = policy.place(self.ruling.rule, self.setting)
        return f"{place}: {self.setting} does not fit '{self.kernel}': {self.why}"


@dataclass(frozen=True)
class AppliedPolicy:
    """`overrides` are fields of `Settings`. `skipped` is what rules with a pattern ask for and this
    kernel cannot have."""

    overrides: FrozenMap[Any] = field(default_factory=FrozenMap)
    add: tuple[Any, ...] = ()
    leave_out: tuple[Config, ...] = ()
    skipped: tuple[Misfit, ...] = ()

    def configs(self, given: Sequence[Any]) -> list[Any]:
        """The same of what it has made of a list before."""
        left = [one for one in given if not any(_agrees(one, out) for out in self.leave_out)]
        known = {plain_config(one) for one in left}
        return [*left, *(one for one in self.add if plain_config(one) not in known)]


def kernel_module(tuner: Any) -> str:
    """The module by the name under which others import it, also where it is the program."""
    fn = tuner.base_fn
    module = str(fn.__module__)
    if module == "__main__":
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        module = getattr(spec, "name", None) or module
    if module == "__main__" or module.startswith("whet_file_"):
        return PurePath(fn.__code__.co_filename).stem
    return module


def apply_rules(tuner: Any, policy: Policy, flags: Collection[str]) -> None:
    from whet.engine.policy.rules import SHARED

    found = policy.rulings(str(tuner.base_fn.__name__), [kernel_module(tuner)])
    said = {name: ruling for name, ruling in found.items() if name not in flags}
    if not said:
        return
    fitting = _Fitting(tuner)
    buckets, add = fitting.buckets(said), fitting.add(said)
    out = fitting.leave_out(said, add)
    for misfit in fitting.skipped:
        if misfit.ruling.exact:
            raise SettingsError(misfit.text(policy))
        if misfit.why == _NONE_LEFT:
            say_once(misfit.text(policy))
    overrides = {setting_field(name): said[name].value for name in SHARED if name in said}
    mode = overrides.pop("mode", None)
    applied = AppliedPolicy(FrozenMap(overrides), add, out, tuple(fitting.skipped))
    tuner.whet_buckets = tuner._lookup.buckets = buckets
    if "check" in said:
        tuner.whet_check = said["check"].value
    for name in ("budget", "effort", "isolate"):
        if name in said:
            setattr(tuner, f"whet_{name}", said[name].value)
    if mode is not None:
        tuner.whet_mode = mode
    tuner.whet_policy = applied
    tuner.configs = tuner.whet_given


def misfits(tuner: Any, rulings: Mapping[str, Ruling]) -> tuple[Misfit, ...]:
    """Of a kernel that whet has taken, whether or not a policy has been applied to it."""
    fitting = _Fitting(tuner)
    fitting.buckets(rulings)
    fitting.leave_out(rulings, fitting.add(rulings))
    return tuple(fitting.skipped)


class _Fitting:
    """What of a policy fits a kernel. A rule with a pattern is about many, and what does not fit
    one of them is left out there."""

    def __init__(self, tuner: Any) -> None:
        self._tuner = tuner
        self.skipped: list[Misfit] = []

    def buckets(self, said: Mapping[str, Ruling]) -> Buckets:
        from whet.engine.policy.rules import BUCKETS

        keys = [*self._tuner.keys, *self._tuner.whet_claims]
        fit = dict(self._tuner.whet_buckets.by_name)
        for setting, ruling in said.items():
            if not setting.startswith(BUCKETS):
                continue
            name = setting.removeprefix(BUCKETS)
            if name not in keys:
                hint = did_you_mean(name, keys)
                why = f"'{name}' is not in its key{hint}"
                self._misfit(ruling, setting, why, tuple(keys))
            elif ruling.value is None:
                fit.pop(name, None)
            else:
                fit[name] = ruling.value
        return Buckets(fit)

    def add(self, said: Mapping[str, Ruling]) -> tuple[Any, ...]:
        ruling = said.get("add")
        made = [self._made(ruling, config) for config in ruling.value] if ruling else []
        return tuple(one for one in made if one is not None)

    def _made(self, ruling: Ruling, config: Config) -> Any:
        if self._has_unknown(ruling, "add", config):
            return None
        given = self._tuner.whet_given
        hooks = {id(one.pre_hook): one.pre_hook for one in given}
        if len(hooks) > 1:
            why = "its configs have different hooks, so nobody knows which an added one needs"
            self._misfit(ruling, "add", why)
            return None
        return stock.Config(
            {name: value for name, value in config.items() if name not in _OPTIONS},
            **{name: config[name] for name in _OPTIONS if name in config},
            pre_hook=next(iter(hooks.values()), None),
        )

    def _has_unknown(self, ruling: Ruling, setting: str, config: Config) -> bool:
        """Whether a parameter is in it that the kernel does not have."""
        given = self._tuner.whet_given
        known = {*self._tuner.arg_names, *_OPTIONS, *(n for one in given for n in one.kwargs)}
        for name in config:
            if name not in known and not _is_option(name):
                names = [*given[0].kwargs, *_OPTIONS] if given else _OPTIONS
                hint = did_you_mean(name, names)
                self._misfit(ruling, setting, f"it has no parameter '{name}'{hint}")
                return True
        return False

    def leave_out(self, said: Mapping[str, Ruling], add: tuple[Any, ...]) -> tuple[Config, ...]:
        ruling = said.get("leave_out")
        if ruling is None:
            return ()
        out = tuple(one for one in ruling.value if not self._has_unknown(ruling, "leave_out", one))
        if not AppliedPolicy(add=add, leave_out=out).configs(self._tuner.whet_given):
            self._misfit(ruling, "leave_out", _NONE_LEFT)
            return ()
        return out

    def _misfit(self, ruling: Ruling, setting: str, why: str, keys: tuple[str, ...] = ()) -> None:
        kernel = str(self._tuner.base_fn.__name__)
        self.skipped.append(Misfit(kernel, setting, ruling, why, keys))


def _is_option(name: str) -> bool:
    """Of the compiler for this GPU, which AMD's has some of."""
    try:
        return hasattr(device.default_options(), name)
    except Exception:  # no GPU here
        return False


def _agrees(config: Any, pattern: Config) -> bool:
    values = plain_config(config)
    return all(name in values and values[name] == value for name, value in pattern.items())
