"""A kernel that Inductor wrote, pointwise or a reduction: block sizes and warps, as a target."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from whet.core.config import Config, Value
from whet.core.errors import ConfigFailure
from whet.core.space import Space
from whet.core.status import Status
from whet.measure.bench.protocol import Verdict
from whet.targets.inductor.operation import LeftAlone
from whet.targets.inductor.target import InductorTarget, on_current_stream

# What is not taken: templates are choices of an operation, a user's kernels have configs of theirs,
# and a combination of kernels is tuned part by part.
_KINDS = ("POINTWISE", "REDUCTION", "PERSISTENT_REDUCTION", "SPLIT_SCAN")

# A build that takes longer is not worth waiting for.
_LONGEST_BUILD_S = 120.0

_NAME = re.compile(r"\bdef (\w+)\(")
_INHERITED = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_LIBDEVICE_PATH")


class Kernel:
    """Inductor's `CachingAutotuner` of one kernel. Configs are Inductor's own numbers; `start` is
    where its descent would begin, and `builds` are under way."""

    def __init__(self, autotuner: Any, builds: dict[Config, Future[Any]]) -> None:
        kind = autotuner.heuristic_type.name
        meta = autotuner.inductor_meta
        if kind not in _KINDS:
            raise LeftAlone(f"it is a kernel of the kind {kind.lower()}")
        if autotuner.device_props.type != "cuda":
            raise LeftAlone(f"it runs on {autotuner.device_props.type}")
        if autotuner.deterministic_mode:
            raise LeftAlone("its results must not depend on what is tuned")
        if autotuner.reset_to_zero_arg_names or meta.get("combo_tuning_groups"):
            raise LeftAlone("it is several kernels in one, or counts from zero")
        if any(not _is_float(autotuner, name) for name in autotuner.mutated_arg_names):
            raise LeftAlone("it changes integers, with which something may be found")
        self.autotuner = autotuner
        self.kind = kind.lower()
        self.gpu = int(autotuner.device_props.index or 0)
        # Numbers are tried one step away only where Inductor would do so.
        self.descends = bool(meta.get("coordinate_descent_tuning"))
        self._tuner = autotuner.coordesc_tuner
        self._builds = builds

    @property
    def start(self) -> Any:
        launchers, results = self.autotuner.launchers, self.autotuner.compile_results
        return launchers[0].config if launchers else results[0].config

    @property
    def known(self) -> dict[Config, Any]:
        """Inductor's own, which are built."""
        return {_numbers(one.config): one for one in self.autotuner.launchers}

    @property
    def code(self) -> str:
        """Without its name, which has a counter."""
        source = str(self.autotuner.fn.src)
        name = _NAME.search(source)
        text = source if name is None else re.sub(rf"\b{name[1]}\b", "triton_", source)
        return f"{text}\n{self.autotuner.triton_meta['signature']}"

    @property
    def key(self) -> dict[str, Any]:
        """Sizes, and what no descent changes but other kernels of the same code have otherwise: how
        many parts a reduction is in, say, for which there is so much memory and no more."""
        hints = self.autotuner.size_hints
        named = hints.items() if isinstance(hints, Mapping) else enumerate(hints or ())
        sizes = {str(name).rstrip("_"): int(size) for name, size in named}
        return sizes | {k: v for k, v in self.start.kwargs.items() if not self._is_tuned(k)}

    def _is_tuned(self, name: str) -> bool:
        return name in self._tuner.tunable_fields or name.endswith("BLOCK")

    def offers(self, config: Config) -> bool:
        """Whether Inductor's descent might come there."""
        start = _numbers(self.start)
        if config in self.known:
            return True
        if not self.descends or set(config) != set(start):
            return False
        for name, value in config.items():
            if value == start[name]:
                continue
            tuner = self._tuner
            if name not in tuner.tunable_fields or type(value) is not int:
                return False
            if tuner.value_too_large(name, value) or tuner.value_too_small(name, value):
                return False
        return self._is_valid(config)

    def near(self, config: Config) -> list[Config]:
        """One step away, one number at a time."""
        found = []
        for name in self._tuner.tunable_fields if self.descends else ():
            if name in config:
                for value in self._tuner.get_neighbour_values(name, config[name]):
                    other = Config({**config, name: value})
                    if self._is_valid(other):
                        found.append(other)
        return found

    def _is_valid(self, config: Config) -> bool:
        return bool(self._tuner.is_valid_config(self.triton_config(config)))

    def triton_config(self, config: Config) -> Any:
        made = copy.deepcopy(self.start)
        for name, value in config.items():
            if name in ("num_warps", "num_stages"):
                setattr(made, name, value)
            else:
                made.kwargs[name] = value
        return made

    def build(self, configs: Sequence[Config]) -> None:
        """Side by side in Inductor's pool, whose workers leave them in Triton's cache. Without one
        they are built as they are loaded."""
        from torch._inductor.async_compile import AsyncCompile

        wanted = [one for one in configs if one not in self._builds and one not in self.known]
        if len(wanted) < 2 or not AsyncCompile.use_process_pool():
            return
        with open(self.autotuner.filename, encoding="utf-8") as file:
            source = file.read()
        name, pool = self.autotuner.fn.__name__, AsyncCompile.process_pool()
        environment = {one: os.environ[one] for one in _INHERITED if one in os.environ}
        for config in wanted:
            job = partial(build_there, name, source, self.triton_config(config), environment)
            self._builds[config] = pool.submit(job)

    def first(self) -> Config:
        return _numbers(self.start)

    def settle(self, config: Config) -> Any:
        """Leaves one launcher, which Inductor takes for the end of its own descent."""
        autotuner = self.autotuner
        launcher = self.known.get(config)
        if launcher is None:
            result = self.result(config)
            launcher, autotuner.compile_results = result.make_launcher(), [result]
        else:
            kept = [one for one in autotuner.compile_results if one.config is launcher.config]
            autotuner.compile_results = kept or autotuner.compile_results
        launcher.config.found_by_coordesc = True
        autotuner.launchers = [launcher]
        return launcher

    def launcher(self, config: Config) -> Any:
        """Inductor's, loaded."""
        if config in self.known:
            return self.known[config]
        building = self._builds.get(config)
        if building is not None:
            try:
                building.result(timeout=_LONGEST_BUILD_S)
            except Exception as error:
                raise ConfigFailure(Status.BUILD_ERROR, _first_line(error)) from error
        return self.result(config).make_launcher()

    def result(self, config: Config) -> Any:
        """As built, in Inductor's words."""
        if self.autotuner.fn.fn is None:  # it came from a worker, which keeps the function
            self.autotuner.fn = self.autotuner._reload_kernel().fn
        try:
            return self.autotuner._precompile_config(self.triton_config(config))
        except Exception as error:
            raise ConfigFailure(Status.BUILD_ERROR, _first_line(error)) from error


def _is_float(autotuner: Any, name: str) -> bool:
    """Called again and again, a kernel that adds to an index in place leads out of its tensors."""
    return str(autotuner.triton_meta["signature"].get(name, "")).startswith(("*fp", "*bf"))


def build_there(name: str, source: str, config: Any, environment: Mapping[str, str]) -> None:
    """In one of Inductor's workers."""
    from torch._inductor import codecache
    from torch._inductor.runtime.compile_tasks import _set_triton_ptxas_path

    _set_triton_ptxas_path()
    os.environ.update(environment)
    codecache._load_triton_kernel_from_source(name, source)._precompile_config(config)


def _numbers(config: Any) -> Config:
    numbers: dict[str, Value] = {**config.kwargs, "num_warps": config.num_warps}
    return Config({**numbers, "num_stages": config.num_stages})


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


class KernelTarget(InductorTarget):
    """Timed on copies of what the kernel changes; `call` is what it was launched with, and None
    where it is only looked up. Results are not compared: only sums' order differs."""

    def __init__(
        self,
        kernel: Kernel,
        configs: Sequence[Config],
        call: tuple[Sequence[Any], Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(f"inductor.{kernel.kind}", kernel.gpu, Space(list(configs)))
        self.kernel, self.timed = kernel, call is not None
        self._call = call or ((), {})

    @property
    def key(self) -> Mapping[str, Any]:
        return self.kernel.key

    @property
    def code(self) -> str:
        return self.kernel.code

    def first(self) -> Config:
        return self.kernel.first()

    def offers(self, config: Config) -> bool:
        return self.kernel.offers(config)

    def load(self, config: Config, artifact: Any) -> LoadedKernel:
        return LoadedKernel(self.kernel.launcher(config), self._call, self)


class LoadedKernel:
    compares = False

    def __init__(
        self, launcher: Any, call: tuple[Sequence[Any], Mapping[str, Any]], target: KernelTarget
    ) -> None:
        self._target = target
        self._launch = on_current_stream(partial(launcher, *call[0], **call[1]), target.gpu)
        spills, registers = getattr(launcher, "n_spills", None), getattr(launcher, "n_regs", None)
        told = {"registers": registers, "spills": spills}
        self.facts: Mapping[str, Value] = {k: v for k, v in told.items() if isinstance(v, int)}

    def first_call(self) -> None:
        self.repeat(1)
        self._target.wait()

    def repeat(self, n: int) -> None:
        for _ in range(n):
            self._launch()

    def check(self) -> Verdict:
        return Verdict(True)

    def close(self) -> None: ...
