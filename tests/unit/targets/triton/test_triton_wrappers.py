"""What libraries put around autotuned kernels: tables of compiled kernels, torch's operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import torch
import triton
from triton.runtime import autotuner as stock
from warmup_parts import N, scale, shift, tuned

import whet
from whet.builds.builder import MEMORY
from whet.targets.triton import foreign
from whet.targets.triton.warming.skipping import OutputsNeededError, watch
from whet.testing.fake_triton import FakeDriver, fake_driver, told

pytestmark = [pytest.mark.medium, pytest.mark.usefixtures("warm_binaries")]


class Entry(triton.runtime.KernelInterface):  # type: ignore[misc]
    """Runs the autotuner once for each kind of call and keeps the compiled kernel, as FlagGems's
    `LibEntry` does."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.kept: dict[int, tuple[Any, Any]] = {}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        if args[2] not in self.kept:
            kernel = self.fn.run(*args, **kwargs)
            tuner = self.fn
            while not hasattr(tuner, "best_config"):
                tuner = tuner.fn
            self.kept[args[2]] = kernel, tuner.best_config
            return kernel
        kernel, config = self.kept[args[2]]
        kernel[(*kwargs["grid"], 1, 1)](*args, *config.kwargs.values())
        return kernel


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    MEMORY.clear()
    with fake_driver() as fake:
        yield fake


def launched(kernel: Any, x: Any) -> Any:
    y = torch.zeros_like(x)
    kernel[(1,)](x, y, N)
    return y


@pytest.mark.parametrize("effort", ["full", "quick"])
@pytest.mark.parametrize("heuristics", [False, True])
def test_a_wrapper_keeps_what_was_tuned(driver: FakeDriver, heuristics: bool, effort: Any) -> None:
    kernel = tuned()
    entry = Entry(triton.heuristics({})(kernel) if heuristics else kernel)

    done = whet.warmup(lambda: launched(entry, torch.ones(N)), effort=effort)

    assert done.complete
    ((compiled, config),) = entry.kept.values()
    assert config is kernel.cache[N, "torch.float32", "torch.float32"]
    assert compiled.name == "scale"
    before = len(driver.launches)
    launched(entry, torch.ones(N))
    assert len(driver.launches) == before + 1


def test_kernels_beside_a_wrapped_one_are_tuned_together(driver: FakeDriver) -> None:
    entry, other = Entry(tuned()), tuned(best=64)

    def step() -> None:
        launched(other, launched(entry, launched(other, torch.ones(N))))

    done = whet.warmup(step)
    assert done.complete
    assert other.best_config.kwargs == {"BLOCK": 64}


def test_a_program_that_uses_what_a_launch_returns_gets_it(driver: FakeDriver) -> None:
    kernel, names = tuned(), []

    def step() -> None:
        x = torch.ones(N)
        compiled = kernel[(1,)](x, torch.zeros_like(x), N)
        names.append(compiled.name)

    assert whet.warmup(step).complete
    assert set(names) == {"scale"}


def test_what_a_librarys_own_operation_reads_inside_was_launched(driver: FakeDriver) -> None:
    kernel, read = tuned(), []

    @torch.library.custom_op("whet_tests::read_inside", mutates_args=())
    def read_inside(x: torch.Tensor) -> torch.Tensor:
        y = launched(kernel, x)
        read.append((y.sum().item(), len(driver.launches)))
        return y

    assert whet.warmup(lambda: read_inside(torch.ones(N))).complete
    assert all(launches > 0 for _, launches in read)


class Table:
    """A cache that is a table somewhere else, as FlagGems's is: nobody can count it."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def __contains__(self, key: Any) -> bool:
        return key in self.known

    def __getitem__(self, key: Any) -> Any:
        return self.known[key]

    def __setitem__(self, key: Any, config: Any) -> None:
        self.known[key] = config


class Loop(stock.Autotuner):
    """Measures when its own table has nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cache = Table()
        self.after_measuring = lambda: None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        if args[2] not in self.cache:
            configs = self.prune_configs(kwargs)
            times = {one: self._bench(*args, config=one, **kwargs) for one in configs}
            self.after_measuring()
            self.cache[args[2]] = min(times, key=lambda one: times[one])
        self.best_config = self.cache[args[2]]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


@pytest.fixture
def installed() -> Iterator[None]:
    whet.install()
    yield
    whet.uninstall()


def looping(**options: Any) -> Any:
    configs = [triton.Config({"BLOCK": block}) for block in (16, 32, 64)]
    loop = Loop(scale, scale.arg_names, configs, ["n"], None, None, **options)
    whet.installed()
    loop.whet_timer = told(lambda config: 1e3 if config.kwargs["BLOCK"] == 32 else 9e3)
    return loop


def fresh(configs: Any, named: Any, **more: Any) -> Any:
    """As gemlite's: other objects at every call."""
    return [triton.Config(dict(one.kwargs), num_warps=2) for one in configs]


@pytest.mark.slow
def test_configs_that_pruning_makes_anew_are_built_together(
    driver: FakeDriver, installed: None, monkeypatch: Any
) -> None:
    loop, built = looping(prune_configs_by={"early_config_prune": fresh}), []

    def build_all(call: Any, menu: Any, configs: Any) -> Any:
        built.append(len(configs))
        return plain(call, menu, configs)

    plain = foreign.build_all
    monkeypatch.setattr(foreign, "build_all", build_all)
    launched(loop, torch.ones(N))

    assert built == [3]
    assert loop.best_config.kwargs == {"BLOCK": 32}


@pytest.mark.slow
def test_keys_of_a_cache_that_cannot_be_counted_are_those_measured_here(
    driver: FakeDriver, installed: None
) -> None:
    loop = looping()
    launched(loop, torch.ones(N))

    (one,) = [one for one in whet.installed() if one.kind.endswith(".Loop") and one.called]
    assert one.keys == 1


def test_a_loop_measures_what_was_computed(driver: FakeDriver, installed: None) -> None:
    """Not what a launch that was left out would have written."""
    kernel, loop = tuned(jit=shift), looping()

    def write(name: str, args: Any) -> None:
        if name == "shift":
            y.fill_(2.0)

    y, measured = torch.zeros(N), []
    seen = y.numpy()  # the same memory, past torch
    driver.on_launch = write
    loop.after_measuring = lambda: measured.append(float(seen[0]))

    def step() -> None:
        kernel[(1,)](torch.ones(N), y, N)
        loop[(1,)](y, torch.zeros(N), N)

    assert whet.warmup(step).complete
    assert measured == [2.0]


def test_what_a_launched_kernel_computes_from_an_unwritten_tensor_is_unwritten() -> None:
    x, y, places = torch.ones(N), torch.ones(N), torch.arange(N)
    watching = watch()
    assert watching is not None
    with watching as skips:
        assert skips.may_skip([x])
        skips.launched([x, places, y])

        with pytest.raises(OutputsNeededError):
            y.sum().item()
