"""`whet.warmup`: the kernels of a whole program, tuned together."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

import importlib.util
import os
import random
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import torch
import triton
import triton.language as tl
from triton.runtime import autotuner as stock
from warmup_parts import N, scale, shift, tuned

import whet
from fork_server import ForkServer
from whet.builds.builder import MEMORY
from whet.engine.ahead import Prospect
from whet.targets.triton.warming.active import active
from whet.targets.triton.warming.skipping import OutputsNeededError, watch
from whet.targets.triton.warming.state import KeptState
from whet.targets.triton.warming.warmup import MetKernel, Program
from whet.testing.fake_triton import FakeDriver, fake_driver, told

pytestmark = [pytest.mark.medium, pytest.mark.usefixtures("warm_binaries")]


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    MEMORY.clear()
    with fake_driver() as fake:
        yield fake
    assert active() is None


def launched(kernel: Any, x: Any, n: int = N) -> Any:
    y = torch.zeros_like(x)
    kernel[(1,)](x, y, n)
    return y


@pytest.mark.slow
def test_all_kernels_of_a_program_are_tuned(driver: FakeDriver, cold: Any) -> None:
    first, second = tuned(scale, best=16), tuned(shift, best=64)

    def step() -> None:
        launched(second, launched(first, torch.ones(N)))

    done = whet.warmup(step)
    assert done.complete
    assert {(one.kernel, one.config["BLOCK"]) for one in done.kernels} == {
        ("scale", 16),
        ("shift", 64),
    }
    assert [one.configs for one in done.kernels] == [3, 3]
    assert cold.measuring_runs() == [1, 1]
    before = len(driver.launches)
    step()
    assert len(driver.launches) == before + 2
    assert (first.best_config.kwargs, second.best_config.kwargs) == ({"BLOCK": 16}, {"BLOCK": 64})


def test_the_call_that_looks_for_kernels_launches_none(driver: FakeDriver) -> None:
    kernels, launches = (tuned(scale), tuned(shift)), []

    def step() -> None:
        x = torch.ones(N)
        for kernel in kernels:
            x = torch.softmax(launched(kernel, x) * 3 + x, 0) @ torch.ones(N, N)
        launches.append(len(driver.launches))

    assert whet.warmup(step).complete
    assert launches[0] == 0
    assert launches[-1] > 0


def test_what_is_tuned_already_costs_one_call(driver: FakeDriver) -> None:
    kernel, calls = tuned(scale), []

    def step() -> None:
        calls.append(len(driver.launches))
        launched(kernel, torch.ones(N))

    whet.warmup(step)
    calls.clear()
    again = whet.warmup(step)
    assert (again.calls, again.complete, again.kernels) == (1, True, ())
    assert len(calls) == 1
    other = tuned(scale)  # another process, as it were, with the same store
    fresh = whet.warmup(lambda: launched(other, torch.ones(N)))
    assert (fresh.calls, fresh.kernels) == (1, ())
    assert other.best_config.kwargs == {"BLOCK": 32}


def test_a_step_that_reads_on_the_host_has_its_kernels_launched(driver: FakeDriver) -> None:
    kernel, read = tuned(scale), []

    def step() -> None:
        y = launched(kernel, torch.ones(N))
        try:
            read.append((y.sum().item(), len(driver.launches)))
        except Exception:
            pytest.fail("a program's own handlers must not see this")

    assert whet.warmup(step).complete
    assert read
    assert all(launches > 0 for _, launches in read)


def test_a_kernel_with_whole_numbers_is_launched(driver: FakeDriver) -> None:
    kernel, launches = tuned(scale), []

    def step() -> None:
        launched(kernel, torch.ones(N, dtype=torch.int32))
        launches.append(len(driver.launches))

    assert whet.warmup(step).complete
    assert launches[0] == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda y: y[3].item(),
        lambda y: bool(y[0] > 0),
        lambda y: y.long(),
        lambda y: torch.nonzero(y),
        lambda y: torch.ones(N)[y > 0],
        lambda y: torch.multinomial(y, 1),
        lambda y: torch.bernoulli(y),
        lambda y: torch.nn.functional.binary_cross_entropy(y, y),
        lambda y: torch.linalg.cholesky(y[:4].reshape(2, 2)),
        lambda y: torch.ones(N).gather(0, y.argmax(0, keepdim=True)),
        lambda y: torch.ops.aten._local_scalar_dense(y.sum()),
        lambda y: torch.zeros(N, dtype=torch.int64).copy_(y),
    ],
)
def test_what_depends_on_an_output_that_was_not_written_is_not_computed(use: Any) -> None:
    watching = watch()
    assert watching is not None
    y = torch.zeros(N)
    with watching as skips:
        assert skips.may_skip([y, 3, None])
        derived = (y * 2).reshape(4, 16).t().contiguous().reshape(-1)
        with pytest.raises(OutputsNeededError):
            use(derived)


def test_what_has_nothing_to_do_with_skipped_outputs_is_left_alone() -> None:
    watching = watch()
    assert watching is not None
    with watching as skips:
        y = torch.zeros(N)
        assert skips.may_skip([y])
        assert torch.ones(N).sum().item() == N
        assert torch.arange(4)[torch.tensor([True, False, True, False])].tolist() == [0, 2]
    assert not skips.may_skip([torch.zeros(N, dtype=torch.int64)])
    assert not skips.may_skip([3.0])


class Training:
    """A step that changes all that training changes."""

    def __init__(self, kernel: Any) -> None:
        torch.manual_seed(1)
        self.kernel = kernel
        self.model = torch.nn.Sequential(torch.nn.Linear(N, N), torch.nn.BatchNorm1d(N))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)
        self.steps = 0
        self.kept = {"seen": 0}

    def step(self) -> None:
        self.steps += 1
        self.kept["seen"] += 1
        x = torch.randn(4, N) * random.random()
        out = self.model(x)
        launched(self.kernel, out.detach()[0].contiguous())
        out.square().mean().backward()
        self.optimizer.step()
        self.schedule.step()

    def state(self) -> Any:
        return (
            {name: value.clone() for name, value in self.model.state_dict().items()},
            [None if p.grad is None else p.grad.clone() for p in self.model.parameters()],
            self.optimizer.state_dict(),
            self.schedule.state_dict(),
            (self.steps, dict(self.kept), random.getstate(), torch.get_rng_state()),
        )


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert one == other


@pytest.mark.parametrize("begun", [False, True], ids=["before any step", "in the middle"])
def test_training_goes_on_as_if_nothing_had_been(driver: FakeDriver, begun: bool) -> None:
    from copy import deepcopy

    training = Training(tuned(scale))
    if begun:
        with whet.mode("off"):
            training.step()
    before = deepcopy(training.state())
    weights = [id(p) for p in training.model.parameters()]
    assert whet.warmup(training.step).complete
    assert_same(before, training.state())
    assert [id(p) for p in training.model.parameters()] == weights


def test_names_that_a_step_assigns_are_put_back(driver: FakeDriver) -> None:
    kernel, count = tuned(scale), 0

    def step() -> None:
        nonlocal count
        count += 1
        launched(kernel, torch.ones(N))

    whet.warmup(step)
    assert count == 0
    whet.warmup(step, restore=False)
    assert count == 1


def test_what_cannot_be_put_back_is_said_before_the_first_call(driver: FakeDriver) -> None:
    kernel, batches, said, when = tuned(scale), iter([torch.ones(N)] * 50), [], []

    def step() -> None:
        when.append(len(said))
        launched(kernel, next(batches))

    done = whet.warmup(step, progress=said.append)
    assert "'batches'" in said[0]
    assert when[0] == 1
    assert any("batches" in note for note in done.notes)


def test_tensors_of_the_arguments_are_put_back() -> None:
    x = torch.ones(N, requires_grad=True)
    kept = KeptState(lambda: None, (x,), {"more": [x * 2]})
    with torch.no_grad():
        x.add_(1)
    x.grad = torch.ones(N)
    kept.restore()
    assert torch.equal(x.detach(), torch.ones(N))
    assert x.grad is None


def test_tensors_that_an_autograd_function_reaches_are_put_back() -> None:
    total, weight = torch.zeros(3), torch.ones(3, requires_grad=True)

    class Counted(torch.autograd.Function):
        calls = torch.zeros(1)

        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            Counted.calls.add_(1)
            return x * 2

        @staticmethod
        def backward(context: Any, grad: Any) -> Any:
            total.add_(grad)
            return grad * 2

    def step() -> None:
        Counted.apply(weight).sum().backward()

    kept = KeptState(step, (), {})
    step()
    assert torch.equal(total, torch.ones(3))
    kept.restore()
    assert torch.equal(total, torch.zeros(3))
    assert Counted.calls == 0
    assert weight.grad is None
    assert not kept.cannot


@pytest.mark.slow
def test_little_effort_leaves_some_out_and_full_effort_goes_on(
    driver: FakeDriver, cold: Any
) -> None:
    blocks = tuple(1 << n for n in range(4, 8))
    configs = [triton.Config({"BLOCK": b}, num_warps=w) for b in blocks for w in (1, 2, 4)]
    kernel = whet.autotune(configs=configs, key=["n"])(shift)
    kernel.whet_timer = told(lambda config: 1e3 * config.kwargs["BLOCK"] / config.num_warps)

    def step() -> None:
        launched(kernel, torch.ones(N))

    done = whet.warmup(step, effort="quick")
    assert done.complete
    tried = len(cold.trials())
    assert 4 <= tried < len(configs)
    kernel.cache.clear()
    assert whet.warmup(step, effort="quick").kernels == ()
    kernel.cache.clear()
    rest = whet.warmup(step, effort="full")
    assert [one.configs for one in rest.kernels] == [len(configs) - tried]
    assert len(cold.trials()) == len(configs)
    assert (kernel.best_config.kwargs, kernel.best_config.num_warps) == ({"BLOCK": 16}, 4)


def test_little_effort_goes_on_only_for_kernels_that_count() -> None:
    def met(median_ns: float | None, launches: int = 1) -> Any:
        result: Any = (
            None
            if median_ns is None
            else SimpleNamespace(best=SimpleNamespace(median_ns=median_ns))
        )
        return MetKernel(
            None, (), "kernel", "", "", Prospect("kernel", "", ()), {}, {}, 1, result=result,
            launches=launches,
        )  # fmt: skip

    kernels = [met(60.0), met(500.0), met(50.0, launches=6), met(None)]
    program: Any = SimpleNamespace(kernels=dict(enumerate(kernels)))
    assert [Program._weighs(program, one) for one in kernels[:3]] == [False, True, True]


def test_a_budget_ends_it_and_says_what_is_left(driver: FakeDriver) -> None:
    kernel = tuned(scale)
    done = whet.warmup(lambda: launched(kernel, torch.ones(N)), budget="1ms")
    assert not done.complete
    assert ["budget" in one.note for one in done.kernels] == [True]
    assert str(done).endswith("1 not tuned")
    launched(kernel, torch.ones(N))  # and now it is tuned as ever
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_a_budget_of_trials_is_refused(driver: FakeDriver) -> None:
    with pytest.raises(whet.UsageError, match="a time, such as 60s"):
        whet.warmup(lambda: None, budget="20trials")


def test_a_step_that_is_a_coroutine_is_refused(driver: FakeDriver) -> None:
    async def step() -> None:
        pass

    with pytest.raises(whet.UsageError, match="the step is a coroutine function"):
        whet.warmup(step)
    with pytest.raises(whet.UsageError, match="the step returned a coroutine"):
        whet.warmup(lambda: step())


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_a_step_raises_reaches_the_caller(driver: FakeDriver, cold: Any, error: Any) -> None:
    training = Training(tuned(scale))
    weight = training.model[0].weight.detach().clone()

    def step() -> None:
        training.step()
        if cold.trials():
            raise error("enough")

    with pytest.raises(error):
        whet.warmup(step)
    assert torch.equal(training.model[0].weight, weight)
    assert active() is None
    assert training.kernel.best_config.kwargs == {"BLOCK": 32}


@pytest.mark.parametrize("mode", ["cached", "off", "record"])
def test_a_mode_that_does_not_tune_calls_the_step_once(
    driver: FakeDriver, cold: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("WHET_MODE", mode)
    kernel, calls = tuned(scale), []

    def step() -> None:
        calls.append(1)
        launched(kernel, torch.ones(N))

    done = whet.warmup(step)
    assert (len(calls), done.complete, done.calls) == (1, False, 1)
    assert f"'{mode}'" in done.notes[0]
    assert cold.trials() == []


class Super(stock.Autotuner):
    def run(self, *args: Any, **kwargs: Any) -> Any:
        result = super().run(*args, **kwargs)
        self.seen = self.best_config
        return result


class ByName(stock.Autotuner):
    def run(self, *args: Any, **kwargs: Any) -> Any:
        return stock.Autotuner.run(self, *args, **kwargs)


@pytest.mark.parametrize("kind", [stock.Autotuner, Super, ByName])
def test_kernels_of_other_peoples_autotuners(driver: FakeDriver, kind: Any) -> None:
    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    kernel = kind(scale, scale.arg_names, configs, ["n"], None, None)
    whet.install()
    try:
        kernel.whet_timer = told(lambda config: float(config.kwargs["BLOCK"]))
        assert whet.warmup(lambda: launched(kernel, torch.ones(N))).complete
        assert kernel.best_config.kwargs == {"BLOCK": 16}
    finally:
        whet.uninstall()


def test_launches_in_other_threads_belong_to_the_program(driver: FakeDriver) -> None:
    """As those of torch's backward passes do."""
    kernel = tuned(scale)

    def step() -> None:
        thread = threading.Thread(target=launched, args=(kernel, torch.ones(N)))
        thread.start()
        thread.join()

    done = whet.warmup(step)
    assert done.complete
    assert [one.kernel for one in done.kernels] == ["scale"]


def test_a_backward_pass_is_part_of_the_program(driver: FakeDriver) -> None:
    forward, backward = tuned(scale), tuned(shift)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            return launched(forward, x)

        @staticmethod
        def backward(context: Any, grad: Any) -> Any:
            return launched(backward, grad.contiguous())

    def step() -> None:
        Scaled.apply(torch.ones(N, requires_grad=True)).square().sum().backward()

    done = whet.warmup(step)
    assert {one.kernel for one in done.kernels} == {"scale", "shift"}
    assert done.complete


def test_one_warm_up_within_another_is_refused(driver: FakeDriver) -> None:
    with pytest.raises(whet.UsageError, match="under way already"):
        whet.warmup(lambda: whet.warmup(lambda: None))


def test_a_key_that_does_not_come_again_is_named(driver: FakeDriver) -> None:
    kernel, sizes = tuned(scale), [17, 48, *[48] * 20]

    def step() -> None:
        launched(kernel, torch.ones(N), sizes.pop(0))

    done = whet.warmup(step, restore=False)
    notes = {one.key.partition(",")[0]: one.note for one in done.kernels}
    assert {key: bool(note) for key, note in notes.items()} == {"n=17": True, "n=48": False}
    assert not done.complete


def test_configs_that_cannot_be_built_do_not_end_it(driver: FakeDriver, cold: Any) -> None:
    kernel = tuned(scale, (48, 32, 64))  # no power of two: Triton refuses it
    done = whet.warmup(lambda: launched(kernel, torch.ones(N)))
    assert done.complete
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    assert cold.statuses()[48] == "build_error"


def test_keys_with_the_same_binaries_are_built_once(driver: FakeDriver, cold: Any) -> None:
    @triton.jit
    def halve(x, y, n, BLOCK: tl.constexpr):  # no other test has it in memory
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) / 2, mask=offsets < n)

    kernel = tuned(halve)

    def step() -> None:
        for n in (16, 32, 48):
            launched(kernel, torch.ones(N), n)

    assert whet.warmup(step).complete
    builds = sorted(trial.cost.work.get("build", 0.0) > 0 for trial in cold.trials())
    assert builds == [False] * 6 + [True] * 3


RANKS = """
import os, sys, torch, triton, triton.language as tl, torch.distributed as dist, whet
from whet.testing.fake_triton import fake_driver, told
sys.path.insert(0, sys.argv[4])
import ranked_kernels
rank, size = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=size)
kernels = []
for jit in ranked_kernels.KERNELS:
    configs = [triton.Config({"BLOCK": block}) for block in (16, 32, 64)]
    kernels.append(whet.autotune(configs=configs, key=["n"])(jit))
    # Each rank finds another one fastest, so that they agree only by asking each other.
    best = 16 << rank
    kernels[-1].whet_timer = told(lambda config: 1e3 + abs(config.kwargs["BLOCK"] - best))

def step():
    total = torch.zeros(64)
    for kernel in kernels:
        y = torch.zeros(64)
        kernel[(1,)](torch.ones(64), y, 64)
        total += y
    dist.all_reduce(total)  # ranks that do not call equally often hang here

with fake_driver():
    done = whet.warmup(step)
    step()
mine = [one.kernel for one in done.kernels if one.source == "tuned"]
dist.barrier()
print(rank, done.complete, [k.best_config.kwargs["BLOCK"] for k in kernels], len(mine))
dist.destroy_process_group()
"""

KERNELS = """
import triton, triton.language as tl

@triton.jit
def one(x, y, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)

@triton.jit
def two(x, y, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 2, mask=o < n)

@triton.jit
def three(x, y, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 3, mask=o < n)

@triton.jit
def four(x, y, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 4, mask=o < n)

KERNELS = [one, two, three, four]
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("torch.distributed") is None, reason="torch has no distributed"
)
def test_ranks_share_the_work_and_agree(tmp_path: Path, fork_server: ForkServer) -> None:
    (tmp_path / "ranked_kernels.py").write_text(KERNELS)
    (tmp_path / "rank.py").write_text(textwrap.dedent(RANKS))

    def ranked(rank: int) -> list[str]:
        environment = {
            **os.environ,
            "WHET_STORE": str(tmp_path / f"store{rank}.db"),
            "TRITON_CACHE_DIR": str(tmp_path / f"triton{rank}"),
            "WHET_AGREE_WAIT": "90",
        }
        command = [sys.executable, "rank.py", str(rank), "2", str(tmp_path / "group"), "."]
        ran = fork_server.run(command, cwd=tmp_path, env=environment)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.split(maxsplit=2)

    with ThreadPoolExecutor() as pool:
        said = list(pool.map(ranked, range(2)))
    assert [one[:2] for one in said] == [["0", "True"], ["1", "True"]]
    picks, numbers = zip(*(one[2].rsplit(maxsplit=1) for one in said), strict=True)
    assert picks[0] == picks[1]
    assert sorted(map(int, numbers)) == [2, 2]
