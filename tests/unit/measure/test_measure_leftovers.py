"""A config that leaves something running behind it fails, and disturbs nobody else."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from visits import failure_of, first

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.measure.bench.executor import LocalBench
from whet.measure.bench.protocol import Sampled, Verdict, Visit
from whet.measure.bench.remote import RemoteBench
from whet.measure.timers import CpuTimer

LIMIT_S = 60.0


def spin() -> None:
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)  # outside the interpreter's lock


def spin_for_a_while() -> None:
    end = time.monotonic() + 0.15
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1000)
    time.sleep(600)


def start(target: Callable[[], None], count: int = 1) -> None:
    for _ in range(count):
        threading.Thread(target=target, daemon=True).start()


def fork(then: Callable[[], None]) -> None:
    if os.fork() == 0:
        then()
        os._exit(0)


LEAVES: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "three threads": lambda: start(spin, 3),
    "a sleeping thread": lambda: start(lambda: time.sleep(600)),
    "a thread that comes to rest": lambda: start(spin_for_a_while),
    "a process": lambda: fork(spin),
    "a process of a process": lambda: fork(lambda: fork(spin)),
    "a sleeping process": lambda: fork(lambda: time.sleep(600)),
}


class Leaving:
    """Leaves behind what its config says, at its first run."""

    def __init__(self, config: Config) -> None:
        self.facts = {"pid": os.getpid()}
        self._leave = LEAVES[str(config["leaves"])]
        self._right = "wrong" not in config

    def repeat(self, n: int) -> None:
        self._leave()
        self._leave = LEAVES["nothing"]
        sum(range(100 * n))

    def check(self) -> Verdict:
        self.repeat(1)
        return Verdict(self._right, "" if self._right else "output differs")

    def close(self) -> None:
        pass


class LeavingLoader:
    def load(self, config: Config, artifact: object) -> Leaving:
        return Leaving(config)


def quick_timer() -> CpuTimer:
    return CpuTimer(min_sample_ns=20_000, warmup_ns=200_000)


@pytest.fixture
def bench() -> Iterator[RemoteBench]:
    with RemoteBench(LeavingLoader, quick_timer, mode="fork") as opened:
        yield opened


def look(bench: RemoteBench, leaves: str) -> Sampled:
    return first(bench, Config(leaves=leaves), 1, limit_s=LIMIT_S)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("leaves", "named"),
    [
        ("three threads", "leaves 3 threads running after it returned"),
        ("a process", "leaves 1 process running after it returned"),
        ("a process of a process", "leaves 1 process running after it returned"),
    ],
)
def test_what_goes_on_running_is_a_failure_of_the_config_that_began_it(
    bench: RemoteBench, leaves: str, named: str
) -> None:
    before = look(bench, "nothing").facts["pid"]
    failure = failure_of(bench, Config(leaves=leaves), LIMIT_S)
    assert named in failure.message
    assert failure.status is Status.RUN_ERROR
    assert look(bench, "nothing").facts["pid"] != before


@pytest.mark.medium
@pytest.mark.parametrize(
    "leaves", ["a sleeping thread", "a thread that comes to rest", "a sleeping process"]
)
def test_what_comes_to_rest_is_no_failure(bench: RemoteBench, leaves: str) -> None:
    before = look(bench, "nothing").facts["pid"]
    look(bench, leaves)
    assert look(bench, "nothing").facts["pid"] == before


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "value"), [("OMP_WAIT_POLICY", "ACTIVE"), ("KMP_BLOCKTIME", "infinite")]
)
def test_threads_that_were_told_never_to_rest_are_no_failure(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with RemoteBench(LeavingLoader, quick_timer, mode="fork") as bench:
        before = look(bench, "three threads").facts["pid"]
        assert look(bench, "nothing").facts["pid"] == before


@pytest.mark.slow
def test_of_several_only_the_one_that_leaves_something_running_fails(bench: RemoteBench) -> None:
    configs = [
        Config(leaves=leaves) for leaves in ("nothing", "three threads", "a sleeping thread")
    ]
    built = tuple((config, None) for config in configs)
    taken = bench.measure(Visit(built, 1, first=True, limit_s=LIMIT_S))
    failed = [isinstance(one, ConfigFailure) for one in taken]
    assert failed == [False, True, False]


@pytest.mark.medium
def test_a_config_that_fails_otherwise_fails_so_and_its_process_is_replaced_too(
    bench: RemoteBench,
) -> None:
    before = look(bench, "nothing").facts["pid"]
    failure = failure_of(bench, Config(leaves="three threads", wrong=True), LIMIT_S)
    assert "output differs" in failure.message
    assert failure.status is Status.WRONG_RESULT
    assert look(bench, "nothing").facts["pid"] != before


def test_in_the_callers_own_process_other_threads_are_none_of_our_business() -> None:
    with LocalBench(LeavingLoader(), quick_timer()) as bench:
        first(bench, Config(leaves="a thread that comes to rest"), 1)
