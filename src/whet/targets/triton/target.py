"""A call of a Triton kernel, as a target of the engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from whet.core.config import Config, Value
from whet.core.frozen import FrozenMap
from whet.core.lazy import cached_property
from whet.core.space import Space
from whet.core.timing import Method
from whet.core.workload import Workload
from whet.engine.fallback.calls import timing_locks
from whet.engine.settings import Settings
from whet.engine.target import QuickSpace
from whet.targets.fingerprint import Source, place_of, python_text
from whet.targets.triton import device
from whet.targets.triton.call import Call, LoadedTriton
from whet.targets.triton.compiler.capture import identified_request, ready_to_fork
from whet.targets.triton.keys import Menu, claimed_key, input_key, plain_config
from whet.targets.triton.source import source_of
from whet.targets.triton.warming.active import ActiveWarmup, active

# The rest is imported where it is used: what is stored is neither built nor measured, and a new
# process should find it at once.
if TYPE_CHECKING:
    from whet.builds.job import Job
    from whet.core.miss import Argument, LaunchGrid
    from whet.engine.target import BenchLimits
    from whet.measure import Timer
    from whet.measure.bench.bits import BitCheck
    from whet.measure.bench.protocol import Bench
    from whet.targets.triton.packed.portable import BinaryCache
    from whet.targets.triton.request import DeviceLimits
    from whet.workers.session import OpenSession


# A benchmark function of the user's own, whose timings are never compared with whet's.
FOREIGN = Method("do_bench")


def apart(workload: Workload) -> Workload:
    """The workload that a user's own benchmark is kept under."""
    return replace(workload, toolchain=FrozenMap({**workload.toolchain, "timer": FOREIGN.timer}))


class TritonTarget(QuickSpace):
    """Compiled in forks of this process, since a kernel may live in `__main__`, in a notebook or in
    a closure; timed in this process, where its arguments are, or isolated in another one."""

    shares_host = False
    build_mode = "fork"
    divides_builds = True

    def __init__(
        self,
        call: Call,
        configs: Sequence[Any],
        key: Mapping[str, Any],
        settings: Settings | None = None,
        *,
        foreign: bool = False,
    ) -> None:
        """Without `settings` it is for looking things up: nothing will be measured, and no timer
        is made to say how it would be. With `foreign`, what a benchmark function of the user's own
        has said of it."""
        self.call = call
        self.name = str(call.tuner.base_fn.__name__)
        self.file = str(call.tuner.base_fn.__code__.co_filename)
        self._configs = configs
        self._key = key
        self._settings = settings
        self._foreign = foreign
        self._index = device.current_index()

    @property
    def source_text(self) -> str:
        return python_text(self.call.tuner.base_fn)

    @cached_property
    def _limits(self) -> DeviceLimits:
        return device.limits(self._index)

    @cached_property
    def menu(self) -> Menu:
        return _menu(self.call.tuner, self._configs)

    @cached_property
    def space(self) -> Space:
        return self.menu.space

    def first(self) -> Config:
        return plain_config(self._configs[0])

    def offers(self, config: Config) -> bool:
        return self._found(config) is not None

    def triton(self, config: Config) -> Any:
        found = self._found(config)
        if found is None:
            raise KeyError(config)
        return found

    def _found(self, config: Config) -> Any:
        """Without a `Menu`, which takes milliseconds to make for a hundred configs, except where
        hooks are part of the config's name."""
        if "pre_hook" in config:
            return self.menu.by_id[config.id] if config in self.space else None
        alike = (one for one in self._configs if _may_be(one, config))
        return next((one for one in alike if plain_config(one) == config), None)

    @property
    def method(self) -> Method:
        """What the timer says may change once: where there is no memory for a cold L2."""
        told = self._told
        if told is None and "_timer" not in vars(self) and not device.timer_made():
            # As the timer will, which talks to the driver: what is stored need not wait for that.
            told = self._expected
        if told is not None:
            return told
        return Method(self._timer.name, self._timer.l2)

    @cached_property
    def _expected(self) -> Method | None:
        expected: Method | None = self.call.tuner.whet_method()
        return expected

    @cached_property
    def _told(self) -> Method | None:
        if self._foreign:
            return FOREIGN
        return self._expected if self._settings is None else None

    @cached_property
    def _timer(self) -> Timer:
        from whet.measure.timer import as_timer

        return as_timer(self.call.tuner.whet_timer())

    @cached_property
    def _binary_caches(self) -> list[BinaryCache]:
        settings = self._settings
        if settings is None or (settings.binaries is None and settings.bundle is None):
            return []
        from whet.targets.triton.packed.portable import active_binary_caches

        return active_binary_caches()

    def ahead(self) -> ActiveWarmup | None:
        return active()

    @property
    def bit_check(self) -> BitCheck | None:
        """None where a benchmark of the user's own decides, which compares nothing."""
        asked = None if self._foreign else self.call.tuner.whet_check
        if not isinstance(asked, str):
            return None
        from whet.targets.triton.checks import bit_check_of

        return bit_check_of(self.call.tuner)

    @property
    def lock(self) -> str | None:
        own: str | None = self.call.tuner.whet_lock
        return own

    def workload(self) -> Workload:
        return self._workload

    @cached_property
    def claims(self) -> Mapping[str, Any]:
        return self._source.claimed

    @cached_property
    def _source(self) -> Source:
        return source_of(self.call.tuner)

    @cached_property
    def _workload(self) -> Workload:
        import triton

        source = self._source
        workload = Workload(
            kernel=self.name,
            fingerprint=source.fingerprint,
            device=device.describe(self._index),
            key=FrozenMap(
                {
                    **self._key,
                    **claimed_key(source, self.call.tuner.whet_buckets),
                    **self._checked_key(),
                }
            ),
            toolchain=FrozenMap({"triton": triton.__version__}),
            origin=source.origin,
        )
        if not self._foreign:
            return workload
        return apart(workload)

    def _checked_key(self) -> Mapping[str, Any]:
        if self.bit_check is None:
            return {}
        from whet.measure.bench.bits import checked_key

        return checked_key(self.bit_check)

    def defined_at(self) -> str:
        tuner = self.call.tuner
        return str(tuner.whet_place) or place_of(self.file, tuner, tuner.base_fn.__module__)

    def call_arguments(self) -> Mapping[str, Any]:
        named = self.call.named
        return {name: named[name] for name in self.call.tuner.arg_names if name in named}

    def launch_grids(self) -> Sequence[LaunchGrid]:
        from whet.targets.triton.recorded import recorded_grids

        return recorded_grids(self.call, self.call.tuner.configs)

    def positional_arguments(self) -> int:
        return len(self.call.args)

    def module_name(self) -> str:
        from whet.targets.triton.recorded import importable_name

        return importable_name(self.call.tuner)

    def recorded(self, arguments: Sequence[Argument], most: int) -> tuple[Argument, ...]:
        from whet.targets.triton.recorded import as_compiled, with_integers

        named = self.call_arguments()
        known = as_compiled(self.call.tuner, named, arguments)
        return with_integers(named, known, most) if most else known

    def tune_key(self) -> Mapping[str, Any]:
        from whet.engine.fallback.untuned import summarised

        tuner, named = self.call.tuner, self.call_arguments()
        arguments = [summarised(name, value) for name, value in named.items()]
        if tuner.whet_inputs is None:
            return {one.name: one.value for one in arguments if one.name in tuner.keys}
        return input_key(tuner.whet_inputs, arguments)[0]

    def tune_remedy(self, command: str) -> str:
        if self.call.tuner.whet_inputs is not None:
            return f"tune it with: {command}"
        return (
            "call it once in mode 'tune', or write a function that makes (grid, args) from a key "
            f"and run: {command} --inputs FILE.py:FUNCTION"
        )

    def reject(self, config: Config) -> str | None:
        return None

    def job(self, config: Config) -> Job | None:
        from whet.builds.job import Job
        from whet.targets.triton.compiler.compile import compile_kernel, launcher_class
        from whet.targets.triton.compiler.divided import begin_kernel
        from whet.targets.triton.packed.portable import packed_for

        call, choice = self.call, self.menu.by_id[config.id]
        found = identified_request(call.tuner.fn, call.args, call.current(choice), self._limits)
        if found is None:
            return None
        request, identity = found
        ready_to_fork(request.target)
        caches = self._binary_caches
        packed = packed_for(request, caches) if caches else None
        args = (request, packed, launcher_class(), self._ir_folder)
        return Job(compile_kernel, args, identity, begin_kernel)

    @cached_property
    def _ir_folder(self) -> Path | None:
        if self._settings is None or not self._settings.keep_ir:
            return None
        from whet.store import ir_folder

        return ir_folder(self._settings.store)

    def bench(self, limits: BenchLimits) -> Bench:
        from whet.engine.turns import LONGEST_VISIT_S, OneAtATime
        from whet.measure.bench.executor import LocalBench

        assert self._settings is not None
        alone = OneAtATime(self._timing_lock, min(LONGEST_VISIT_S, self._settings.agree_wait_s))
        checks, room = self.call.checks, self.call.room
        room.limit(limits.device_bytes)

        def here() -> Bench:
            return LocalBench(self, self._timer, check_each=checks, room=room, alone=alone)

        if limits.open_session is not None:
            return self._bench_elsewhere(limits, limits.open_session, here)
        own: bool | None = self.call.tuner.whet_isolate
        if limits.isolate if own is None else own:
            # Here, since few need it and every program that uses whet would wait for it.
            from whet.targets.triton.isolated.bench import IsolatedBench

            return IsolatedBench(self, self._configs, here, alone)
        return here()

    def _bench_elsewhere(
        self, limits: BenchLimits, open_session: OpenSession, here: Callable[[], Bench]
    ) -> Bench:
        from whet.engine.turns import LONGEST_VISIT_S, OneAtATime
        from whet.targets.triton.isolated.bench import IsolatedBench
        from whet.targets.triton.isolated.sending import Elsewhere

        assert self._settings is not None
        alone: Callable[[], AbstractContextManager[object]] = nullcontext
        if not limits.elsewhere:  # other machines' GPUs are given out by whoever runs them
            folder = timing_locks(self._settings)
            path = device.timing_lock_path(int(limits.device), folder)
            alone = OneAtATime(path, min(LONGEST_VISIT_S, self._settings.agree_wait_s))
        same = not limits.elsewhere and int(limits.device) == self._index
        elsewhere = Elsewhere(open_session, limits.elsewhere, same)
        return IsolatedBench(self, self._configs, here, alone, elsewhere)

    @cached_property
    def _timing_lock(self) -> Path:
        assert self._settings is not None
        return device.timing_lock_path(self._index, timing_locks(self._settings))

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        """The same binary on the same grid with the same hook."""
        binary = facts.get("binary")
        if binary is None:
            return None
        choice = self.menu.by_id[config.id]
        grid = self.call.keywords.get("grid")
        try:
            launched = tuple(grid(self.call.full(choice))) if callable(grid) else grid
        except Exception:  # it fails, or asks for what heuristics add: a launch will tell
            return None
        return (binary, launched, choice.num_warps, choice.num_ctas, choice.pre_hook)

    def features(self, config: Config) -> Mapping[str, float]:
        return {}

    def load(self, config: Config, artifact: Any) -> LoadedTriton:
        return LoadedTriton(self.call, self.menu.by_id[config.id])


def _may_be(one: Any, config: Config) -> bool:
    """Quickly; what is no plain value may be anything."""
    values = one.all_kwargs()
    return len(values) == len(config) and all(
        name in config and (type(value) not in _PLAIN or value == config[name])
        for name, value in values.items()
    )


_PLAIN = (bool, int, float, str)


_Contents = list[tuple[Any, dict[str, Any], Any]]

_menus: WeakKeyDictionary[Any, tuple[_Contents, Menu]] = WeakKeyDictionary()


def _menu(tuner: Any, configs: Sequence[Any]) -> Menu:
    """The kernel's last one, where it still holds: shapes are tuned one after another, and people
    may have changed a config in between."""
    contents = [(config, config.all_kwargs(), config.pre_hook) for config in configs]
    known = _menus.get(tuner)
    if known is None or not _unchanged(known[0], contents):
        known = _menus[tuner] = contents, Menu(configs)
    return known[1]


def _unchanged(before: _Contents, now: _Contents) -> bool:
    def same(one: tuple[Any, dict[str, Any], Any], two: tuple[Any, dict[str, Any], Any]) -> bool:
        return one[0] is two[0] and one[2] is two[2] and one[1] == two[1]

    try:
        return len(before) == len(now) and all(map(same, before, now))
    except Exception:  # values that cannot be compared, such as arrays
        return False
