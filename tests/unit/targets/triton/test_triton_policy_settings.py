"""Every setting of a policy file, on a kernel of whet's decorator and on kernels of others."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.runtime import autotuner as stock

import whet
from whet.core.budget import Budget
from whet.core.errors import NotTunedError
from whet.engine.policy.reading import RULE_SETTINGS
from whet.targets.triton import device, tuning
from whet.targets.triton.isolated import bench as isolated
from whet.testing.fake_triton import FakeTensor, fake_driver, told

pytestmark = pytest.mark.usefixtures("warm_binaries")

BLOCKS = (16, 32, 64)

Policy = Callable[[str], Path]
Taken = Callable[[], Any]


class Caching(stock.Autotuner):  # type: ignore[misc]
    """Somebody's subclass with a `run` of its own, as FLA's."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return super().run(*args, **kwargs)


@triton.jit  # type: ignore[untyped-decorator]
def double(out, x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * 2, mask=offsets < n)


def by_decorator(configs: Any) -> Any:
    return whet.autotune(configs=configs, key=["n"])(double)


def by_install(configs: Any) -> Any:
    kernel = stock.Autotuner(double, double.arg_names, configs, ["n"], None, None)
    whet.install()
    return kernel


def by_install_of_a_subclass(configs: Any) -> Any:
    kernel = Caching(double, double.arg_names, configs, ["n"], None, None)
    whet.install()
    return kernel


@pytest.fixture(params=[by_decorator, by_install, by_install_of_a_subclass])
def kernel(request: pytest.FixtureRequest, cold: Any) -> Iterator[Taken]:
    """The larger its block, the faster it is."""

    def make() -> Any:
        made = request.param([triton.Config({"BLOCK": block}) for block in BLOCKS])
        made.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
        return made

    yield make
    whet.uninstall()


@pytest.fixture(autouse=True)
def driver() -> Iterator[Any]:
    with fake_driver() as fake:
        yield fake


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    def write(text: str) -> Path:
        path = tmp_path / "whet.toml"
        path.write_text(f'[[kernel]]\nmatch = "{__name__}:double"\n{text}\n')
        monkeypatch.setenv("WHET_POLICY", str(path))
        return path

    return write


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the engine was asked for, tuning by tuning."""
    seen: list[dict[str, Any]] = []
    from whet.engine.tuning import tune as engine

    def tune(target: Any, **keywords: Any) -> Any:
        seen.append(keywords)
        return engine(target, **keywords)

    monkeypatch.setattr(tuning, "tune", tune)
    return seen


def call(tuner: Any, n: int = 4) -> int:
    tuner[(1,)](FakeTensor([0.0]), FakeTensor([1.0], address=8192), n)
    return int(tuner.best_config.kwargs["BLOCK"])


@pytest.mark.medium
def test_mode_off(kernel: Taken, policy: Policy, cold: Any) -> None:
    policy('mode = "off"')
    assert call(kernel()) == 16
    assert cold.workloads() == []


@pytest.mark.medium
def test_mode_require(kernel: Taken, policy: Policy) -> None:
    policy('mode = "require"')
    with pytest.raises(NotTunedError):
        call(kernel())


@pytest.mark.medium
def test_mode_record(kernel: Taken, policy: Policy, cold: Any) -> None:
    policy('mode = "record"')
    assert call(kernel()) == 16
    assert cold.workloads() == []
    with whet.open_store() as store:
        assert [miss.workload.kernel for miss in store.missed()] == ["double"]


@pytest.mark.slow
def test_mode_cached_then_tune(kernel: Taken, policy: Policy, cold: Any) -> None:
    policy('mode = "cached"')
    assert call(kernel()) == 16
    policy('mode = "tune"')
    assert call(kernel()) == 64
    policy('mode = "cached"')
    assert call(kernel()) == 64


@pytest.mark.medium
def test_effort(kernel: Taken, policy: Policy, asked: list[dict[str, Any]]) -> None:
    policy('effort = "quick"')
    call(kernel())
    assert asked[0]["effort"] == "quick"


@pytest.mark.medium
def test_budget(kernel: Taken, policy: Policy, asked: list[dict[str, Any]], cold: Any) -> None:
    policy('budget = "1trials"')
    call(kernel())
    assert asked[0]["budget"] == Budget(trials=1)
    assert len(cold.trials()) < len(BLOCKS)


@pytest.mark.medium
def test_buckets(kernel: Taken, policy: Policy, cold: Any) -> None:
    policy("buckets = { n = [8, 100] }")
    tuner = kernel()
    assert {call(tuner, n) for n in (3, 8, 9, 50, 100, 101, 199)} == {64}
    assert sorted(one.key["n"] for one in cold.workloads()) == [8, 100, 200]


@pytest.mark.medium
@pytest.mark.parametrize("said", [True, False])
def test_isolation(
    kernel: Taken, policy: Policy, monkeypatch: pytest.MonkeyPatch, said: bool
) -> None:
    policy(f"isolate = {str(said).lower()}")
    monkeypatch.setenv("WHET_ISOLATE", "no" if said else "yes")
    asked: list[bool] = []

    def bench(target: Any, configs: Any, here: Callable[[], Any], alone: Any) -> Any:
        asked.append(True)
        return here()

    monkeypatch.setattr(isolated, "IsolatedBench", bench)
    assert call(kernel()) == 64
    assert bool(asked) is said


@pytest.mark.medium
@pytest.mark.parametrize(("said", "statuses"), [("agree", ["ok", "wrong_result"]), ("none", None)])
def test_check(
    kernel: Taken, policy: Policy, cold: Any, driver: Any, said: str, statuses: Any
) -> None:
    policy(f'check = "{said}"')
    launches: list[int] = []

    def launch(name: str, arguments: tuple[Any, ...]) -> None:
        launches.append(1)
        arguments[0].values = [float(driver.launches[-1][1][0])]

    driver.on_launch = launch
    tuner = kernel()
    grid = lambda meta: (meta["BLOCK"],)  # noqa: E731 - so that every config writes another number
    tuner[grid](FakeTensor([0.0]), FakeTensor([1.0], address=8192), 4)
    found = sorted(set(cold.statuses().values()))
    assert found == statuses if statuses else "wrong_result" not in found
    assert launches


@pytest.mark.medium
@pytest.mark.parametrize("line", ['l2 = "warm"', 'l2 = "cold"\nl2_bytes = "64M"'])
def test_the_l2_and_its_bytes(
    kernel: Taken, policy: Policy, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    policy(line)
    seen: set[tuple[str, int | None]] = set()

    def timer(index: int, l2: str, l2_bytes: int | None, graph: bool) -> Any:
        seen.add((l2, l2_bytes))
        return told(lambda config: 1000.0 - config.kwargs["BLOCK"])()

    monkeypatch.setattr(device, "timer", timer)
    tuner = kernel()
    del tuner.whet_timer
    assert call(tuner) == 64
    assert seen == {("warm", None) if "warm" in line else ("cold", 64 * 2**20)}


@pytest.mark.medium
def test_limits(kernel: Taken, policy: Policy, asked: list[dict[str, Any]]) -> None:
    policy('build_limit = "7s"\nrun_limit = 3\nmemory = "2G"\ndevice_memory = "1G"')
    call(kernel())
    settings = asked[0]["settings"]
    assert (settings.build_limit_s, settings.run_limit_s) == (7.0, 3.0)
    assert (settings.memory_bytes, settings.device_memory_bytes) == (2 * 2**30, 2**30)


@pytest.mark.medium
def test_configs_to_add_and_to_leave_out(kernel: Taken, policy: Policy, cold: Any) -> None:
    policy("add = [{ BLOCK = 128, num_warps = 8 }]\nleave_out = [{ BLOCK = 64 }]")
    tuner = kernel()
    assert call(tuner) == 128
    assert tuner.best_config.num_warps == 8
    assert cold.measured() == {16, 32, 128}


def test_no_setting_is_without_a_test() -> None:
    tested = {"mode", "effort", "budget", "buckets", "isolate", "check", "l2", "l2_bytes"}
    limits = {"build_limit", "run_limit", "memory", "device_memory"}
    assert set(RULE_SETTINGS) == tested | limits | {"add", "leave_out"}
