"""The policy file and Triton's kernels: those of whet's decorator, and those of others."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.runtime import autotuner as stock

import whet
from whet.core.buckets import Buckets
from whet.core.budget import Budget
from whet.core.errors import NotTunedError, SettingsError
from whet.engine.policy import finding
from whet.targets.triton import device
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.policy import apply_policy, kernel_module, settings_for
from whet.testing.fake_triton import FakeTensor, fake_driver, told

pytestmark = pytest.mark.usefixtures("warm_binaries")

BLOCKS = (16, 32, 64)

MODULE = __name__


class Caching(stock.Autotuner):  # type: ignore[misc]
    """Somebody's subclass with a `run` of its own, as FLA's."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.runs = getattr(self, "runs", 0) + 1
        return super().run(*args, **kwargs)


class Loop(stock.Autotuner):  # type: ignore[misc]
    """Has a loop over `_bench` and a cache of its own, as FlagGems's."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = self.prune_configs(kwargs)
        self.timings = {c: self._bench(*args, config=c, **kwargs) for c in configs}
        self.best_config = min(self.timings, key=lambda config: self.timings[config])
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


def plain(configs: Any = None) -> tuple[Any, list[Any]]:
    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        tl.store(out + offsets, value * 2, mask=offsets < n)

    listed = [triton.Config({"BLOCK": block}) for block in BLOCKS] if configs is None else configs
    return double, listed


def kernel(configs: Any = None, **options: Any) -> Any:
    """By whet's own decorator. The larger its block, the faster it is."""
    fn, listed = plain(configs)
    return timed(whet.autotune(configs=listed, key=["n"], **options)(fn))


def others(kind: Any = stock.Autotuner, configs: Any = None) -> Any:
    """A library's, before anybody has heard of whet."""
    fn, listed = plain(configs)
    return kind(fn, fn.arg_names, listed, ["n"], None, None)


def timed(tuner: Any) -> Any:
    tuner.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
    return tuner


def call(tuner: Any, n: int = 4) -> int:
    tuner[(1,)](FakeTensor([0.0]), FakeTensor([1.0], address=8192), n)
    return int(tuner.best_config.kwargs["BLOCK"])


@pytest.fixture(autouse=True)
def driver() -> Iterator[Any]:
    with fake_driver() as fake:
        yield fake


@pytest.fixture(autouse=True)
def uninstalled() -> Iterator[None]:
    yield
    whet.uninstall()


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "whet.toml"
        path.write_text(text)
        monkeypatch.setenv("WHET_POLICY", str(path))
        return path

    return write


@pytest.mark.slow
@pytest.mark.parametrize("kind", [stock.Autotuner, Caching])
def test_buckets_by_policy_end_tuning_again_for_every_length(
    policy: Callable[[str], Path], cold: Any, kind: Any
) -> None:
    policy(f'[[kernel]]\nmatch = "{MODULE}:dou*"\nbuckets = {{ n = "pow2", T = "pow2" }}\n')
    tuner = others(kind)
    whet.install()
    timed(tuner)

    assert {call(tuner, n) for n in range(5, 129)} == {64}
    assert sorted(one.key["n"] for one in cold.workloads()) == [8, 16, 32, 64, 128]


@pytest.mark.medium
def test_without_a_policy_every_length_is_tuned(cold: Any) -> None:
    tuner = kernel()
    for n in range(5, 10):
        call(tuner, n)
    assert len(cold.workloads()) == 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", [stock.Autotuner, Caching])
def test_configs_are_added_and_left_out(
    policy: Callable[[str], Path], cold: Any, kind: Any
) -> None:
    policy(
        '[[kernel]]\nmatch = "double"\n'
        "add = [{ BLOCK = 128, num_warps = 2 }, { BLOCK = 16 }]\n"
        "leave_out = [{ BLOCK = 64 }, { BLOCK = 32, num_warps = 8 }]\n"
    )
    tuner = others(kind)
    before = tuner.configs
    whet.install()
    timed(tuner)

    assert call(tuner) == 128
    assert tuner.best_config.num_warps == 2
    assert cold.measured() == {16, 32, 128}
    whet.uninstall()
    assert tuner.configs is before
    assert [one.kwargs["BLOCK"] for one in before] == list(BLOCKS)


@pytest.mark.slow
def test_a_loop_of_a_library_gets_the_policys_configs(policy: Callable[[str], Path]) -> None:
    policy('[[kernel]]\nmatch = "*"\nadd = [{ BLOCK = 128 }]\nleave_out = [{ BLOCK = 64 }]\n')
    tuner = others(Loop)
    whet.install()
    timed(tuner)

    assert call(tuner) == 128
    assert [one.kwargs["BLOCK"] for one in tuner.timings] == [16, 32, 128]


@pytest.mark.medium
def test_a_kernel_with_one_config_can_be_tuned_among_those_added(
    policy: Callable[[str], Path], cold: Any
) -> None:
    policy('[[kernel]]\nmatch = "double"\nadd = [{ BLOCK = 256 }]\n')
    tuner = kernel([triton.Config({"BLOCK": 16})])
    assert call(tuner) == 256
    assert cold.measured() == {16, 256}


@pytest.mark.medium
def test_an_added_config_has_the_hook_that_all_others_have(policy: Callable[[str], Path]) -> None:
    seen = []
    configs = [
        triton.Config({"BLOCK": b}, pre_hook=lambda a: seen.append(a["BLOCK"])) for b in (16,)
    ]
    configs += [triton.Config({"BLOCK": 32}, pre_hook=configs[0].pre_hook)]
    policy('[[kernel]]\nmatch = "double"\nadd = [{ BLOCK = 64 }]\n')
    assert call(kernel(configs)) == 64
    assert seen[-1] == 64


@pytest.mark.medium
def test_the_mode_of_a_rule_outranks_the_decorator_and_the_context(
    policy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, cold: Any
) -> None:
    policy('[[kernel]]\nmatch = "double"\nmode = "off"\n')
    monkeypatch.setenv("WHET_MODE", "tune")
    with whet.mode("require"):
        assert call(kernel(mode="tune")) == 16
    assert cold.workloads() == []


def test_a_rule_for_other_kernels_leaves_the_mode_alone(
    policy: Callable[[str], Path],
) -> None:
    policy('[[kernel]]\nmatch = ["other.module:*", "halve"]\nmode = "off"\n')
    tuner = kernel(mode="require")
    with pytest.raises(NotTunedError):
        call(tuner)
    assert tuner.whet_policy is None


def test_rules_take_the_place_of_the_decorators_arguments(policy: Callable[[str], Path]) -> None:
    policy(
        '[[kernel]]\nmatch = "double"\nbudget = "7s"\neffort = "quick"\nisolate = false\n'
        'check = "none"\nbuckets = { n = "none" }\nl2 = "warm"\nl2_bytes = 4096\nbuild_limit = 3\n'
        'run_limit = "2s"\n'
    )
    tuner = kernel(budget="1s", isolate=True, check="agree", buckets={"n": "pow2"})
    apply_policy(tuner)

    assert tuner.whet_budget == Budget(seconds=7.0)
    assert (tuner.whet_effort, tuner.whet_isolate, tuner.whet_check) == ("quick", False, None)
    assert tuner.whet_buckets == Buckets()
    found = settings_for(tuner)
    assert (found.l2, found.l2_bytes, found.build_limit_s, found.run_limit_s) == (
        "warm",
        4096,
        3.0,
        2.0,
    )
    assert settings_for(kernel()).l2 == "cold"


def test_the_l2_by_policy_is_what_the_kernel_is_timed_with(
    policy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy('[[kernel]]\nmatch = "double"\nl2 = "warm"\n')
    fn, listed = plain()
    tuner = whet.autotune(configs=listed, key=["n"])(fn)
    seen = []
    monkeypatch.setattr(device, "timer", lambda index, l2, l2_bytes, graph: seen.append(l2))
    tuner.whet_timer()
    apply_policy(tuner)
    tuner.whet_timer()
    assert seen == ["cold", "warm"]


def test_what_a_command_was_given_outranks_a_rule(policy: Callable[[str], Path]) -> None:
    policy('[[kernel]]\nmatch = "double"\nbudget = "7s"\nl2 = "warm"\n')
    tuner = kernel(budget="1s")
    apply_policy(tuner, flags=["budget"])
    assert (tuner.whet_budget, settings_for(tuner).l2) == ("1s", "warm")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('buckets = { m = "pow2" }', "buckets.m does not fit 'double': 'm' is not in its key"),
        ("add = [{ BLOK = 64 }]", "'BLOK'; did you mean 'BLOCK'?"),
        ("leave_out = [{ num_wraps = 4 }]", "'num_wraps'; did you mean 'num_warps'?"),
        ("leave_out = [{ num_warps = 4 }]", "none of its configs would be left"),
    ],
)
def test_what_does_not_fit_is_an_error_in_a_rule_that_names_the_kernel(
    policy: Callable[[str], Path], text: str, said: str, cold: Any
) -> None:
    path = policy(f'[[kernel]]\nmatch = "double"\nmode = "tune"\n{text}\n')
    tuner = kernel()
    for _ in range(2):
        with pytest.raises(SettingsError) as caught:
            call(tuner)
        assert str(caught.value).startswith(f"{path}:4: ")
        assert said in str(caught.value)
    assert cold.workloads() == []


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:.*none of its configs would be left")
@pytest.mark.parametrize(
    "text",
    [
        'buckets = { m = "pow2" }',
        "add = [{ BLOK = 64 }]",
        "leave_out = [{ num_warps = 4 }]",
        "leave_out = [{ BLOK = 16 }]",
    ],
)
def test_what_does_not_fit_is_left_out_where_a_pattern_met_the_kernel(
    policy: Callable[[str], Path], text: str, cold: Any
) -> None:
    policy(f'[[kernel]]\nmatch = "d*"\nmode = "tune"\n{text}\n')
    tuner = kernel(buckets={"n": "pow2"})
    assert call(tuner, 5) == 64
    assert cold.measured() == set(BLOCKS)
    assert [one.key["n"] for one in cold.workloads()] == [8]
    [skipped] = tuner.whet_policy.skipped
    assert text.startswith(skipped.setting.partition(".")[0])


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:.*none of its configs would be left")
def test_a_pattern_never_leaves_a_kernel_without_configs(
    policy: Callable[[str], Path], cold: Any
) -> None:
    policy('[[kernel]]\nmatch = "d*"\nadd = [{ BLOK = 1 }]\nleave_out = [{ num_warps = 4 }]\n')
    assert call(kernel()) == 64
    assert cold.measured() == set(BLOCKS)


@pytest.mark.medium
def test_all_configs_may_be_replaced(policy: Callable[[str], Path], cold: Any) -> None:
    policy(
        '[[kernel]]\nmatch = "double"\nadd = [{ BLOCK = 128, num_warps = 2 }]\n'
        "leave_out = [{ num_warps = 4 }]\n"
    )
    tuner = kernel()
    assert call(tuner) == 128
    assert len(tuner.configs) == 1


def test_a_broken_file_stops_a_call_with_one_line(policy: Callable[[str], Path]) -> None:
    path = policy('[[kernel]]\nmatch = "double"\nmoed = "off"\n')
    with pytest.raises(SettingsError) as caught:
        call(kernel())
    assert str(caught.value).startswith(f"{path}:3: 'moed' is not a setting of a kernel")


@pytest.mark.medium
def test_a_tuned_call_never_looks_at_the_policy_again(
    policy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = policy('[[kernel]]\nmatch = "double"\nbuckets = { n = "pow2" }\n')
    tuner = kernel()
    call(tuner, 5)
    path.write_text("broken")
    monkeypatch.setattr(finding, "policy_path", lambda: pytest.fail("looked for the policy"))
    assert call(tuner, 5) == 64
    assert call(tuner, 7) == 64


def test_configs_that_are_assigned_later_are_edited_too(policy: Callable[[str], Path]) -> None:
    policy('[[kernel]]\nmatch = "double"\nadd = [{ BLOCK = 128 }]\nleave_out = [{ BLOCK = 16 }]\n')
    tuner = kernel()
    for _ in range(2):
        assert [one.kwargs["BLOCK"] for one in tuner.configs] == [32, 64, 128]
        tuner.configs = tuner.configs
    tuner.configs = [triton.Config({"BLOCK": block}) for block in (8, 16)]
    assert [one.kwargs["BLOCK"] for one in tuner.configs] == [8, 128]


@pytest.mark.medium
def test_threads_that_call_first_at_once_see_the_same_kernel(
    policy: Callable[[str], Path], cold: Any
) -> None:
    policy('[[kernel]]\nmatch = "double"\nadd = [{ BLOCK = 128 }]\nbuckets = { n = "pow2" }\n')
    tuner = kernel()
    start, found = threading.Barrier(4), []

    def go(n: int) -> None:
        start.wait()
        found.append(call(tuner, n))

    threads = [threading.Thread(target=go, args=(n,)) for n in (5, 6, 7, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {128}
    assert [one.key["n"] for one in cold.workloads()] == [8]
    assert len(tuner.configs) == 4


@pytest.mark.slow
def test_installing_again_applies_the_policy_again(
    policy: Callable[[str], Path], cold: Any
) -> None:
    policy('[[kernel]]\nmatch = "double"\nmode = "off"\n')
    tuner = others()
    whet.install()
    timed(tuner)
    assert call(tuner) == 16
    whet.uninstall()
    assert type(tuner) is stock.Autotuner
    assert not [name for name in vars(tuner) if "policy" in name or "given" in name]
    policy("")
    whet.install()
    timed(tuner)
    assert call(tuner) == 64
    assert isinstance(tuner, Autotuner)


def test_a_kernel_of_the_program_goes_by_the_name_of_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tuner = kernel()
    assert kernel_module(tuner) == MODULE
    for module in ("__main__", "whet_file_0123456789ab"):
        monkeypatch.setattr(tuner.base_fn, "__module__", module)
        monkeypatch.setattr("__main__.__spec__", None)
        assert kernel_module(tuner) == Path(__file__).stem
