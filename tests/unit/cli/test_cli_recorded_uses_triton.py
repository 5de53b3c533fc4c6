"""Recorded calls, used by `whet verify` and `whet precompile`, and found on another machine."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, own_modules

pytest.importorskip("triton")
pytest.importorskip("torch")

import torch

import whet as package
from whet.core.miss import Miss
from whet.targets.files import load_module
from whet.testing.fake_triton import fake_driver

KERNELS = """
import triton
import triton.language as tl
import whet
from whet.testing.fake_triton import told

@triton.jit
def gather(x, index, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index + i, mask=i < n, other=0)
    tl.store(y + i, tl.load(x + at, mask=i < n), mask=i < n)

tuned = whet.autotune([triton.Config({"BLOCK": size}) for size in (16, 32)], key=["n"])(gather)
tuned.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
"""


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, binaries: Path) -> Iterator[Any]:
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(binaries))
    monkeypatch.setenv("WHET_POLICY", "none")
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("met_kernels.py").write_text(KERNELS)
    with own_modules("met_"), fake_driver() as fake:
        yield fake


def call(kernel: Any, n: int = 10_000) -> int:
    index = torch.arange(n, dtype=torch.int32)
    kernel[lambda meta: (-(-n // meta["BLOCK"]),)](torch.zeros(n), index, torch.zeros(n), n)
    return int(kernel.best_config.kwargs["BLOCK"])


def record(*sizes: int) -> None:
    sys.modules.pop("met_kernels", None)
    with package.mode("record"):
        for n in sizes or (10_000,):
            call(load_module(Path("met_kernels.py").resolve()).tuned, n)


def missed(**asked: Any) -> list[Miss]:
    with package.open_store() as store:
        return store.missed(**asked)


@pytest.mark.slow
def test_picks_of_recorded_keys_are_verified_with_the_recorded_calls(whet: Whet) -> None:
    record(10_000, 50_000)
    ran = whet("verify", "--missed", "-q")
    assert ran.code == 1
    assert "'whet tune --missed'" in ran.err
    assert whet("tune", "--missed", "-q").code == 0
    ran = whet("verify", "--missed", "-q", "--json")
    assert ran.code == 0, ran
    told = json.loads(ran.out)
    assert [one["verdict"] for one in told["picks"]] == ["ok", "ok"]
    assert told["not_verified"] == []


@pytest.mark.medium
def test_a_kernel_without_inputs_is_verified_by_its_record(whet: Whet) -> None:
    record()
    whet("tune", "--missed", "-q")
    ran = whet("verify", "met_kernels.py:tuned", "-q")
    assert ran.code == 0, ran
    assert "1 pick: 1 ok" in ran.out


@pytest.mark.medium
def test_what_was_recorded_on_another_device_is_not_verified_here(whet: Whet) -> None:
    record()
    whet("tune", "--missed", "-q")
    with fake_driver(80):
        ran = whet("verify", "--missed", "-q")
    assert ran.code == 1
    assert "recorded on cuda 90" in ran.err
    assert "cuda 80" in ran.err


@pytest.mark.medium
def test_verify_takes_a_name_or_missed_and_no_keys_with_it(whet: Whet) -> None:
    assert "'FILE.py:NAME' or --missed" in whet("verify").err
    record()
    assert "omit --key" in whet("verify", "--missed", "--key", "n=3").err


def test_with_nothing_recorded_verify_and_precompile_say_how_to_record(whet: Whet) -> None:
    with package.open_store():
        pass
    for command in ("verify", "precompile"):
        ran = whet(command, "--missed")
        assert ran.code != 0
        assert "whet run --record SCRIPT.py" in ran.err


@pytest.mark.medium
def test_recorded_calls_are_compiled_for_the_gpu_that_met_them(whet: Whet) -> None:
    record(10_000, 20_000)
    ran = whet("precompile", "--missed", "--out", "packed", "-q", "--json")
    assert ran.code == 0, ran
    told = json.loads(ran.out)
    assert told["kernel"] == "gather"
    assert {one["architecture"] for one in told["builds"]} == {"sm_90"}
    assert [one["config"]["BLOCK"] for one in told["builds"]] == [16, 32]
    # Both sizes are divisible by 16, so that one binary serves both.
    assert [one["keys"] for one in told["builds"]] == [[{"n": 10_000}, {"n": 20_000}]] * 2
    assert len(list(Path("packed").iterdir())) >= 2
    assert missed() == missed(tuned=True)


@pytest.mark.slow
def test_recorded_calls_are_compiled_for_other_gpus_and_as_they_were_specialized(
    whet: Whet,
) -> None:
    record(10_000, 10_007)
    told = json.loads(whet("precompile", "--missed", "--arch", "a100", "-q", "--json").out)
    assert {one["architecture"] for one in told["builds"]} == {"sm_80"}
    assert [one["keys"] for one in told["builds"]] == [[{"n": 10_000}]] * 2 + [[{"n": 10_007}]] * 2
    ran = whet("precompile", "met_kernels.py:tuned", "--missed", "-q")
    assert ran.code == 0
    assert "4 of 4 compiled" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.medium
def test_keys_that_are_left_for_the_same_reason_are_told_together(
    whet: Whet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_RECORD_VALUES", "0")
    record(333, 444)
    for command in ("tune", "precompile"):
        out = whet(command, "--missed", "-q").out
        assert len(re.findall("neither its", " ".join(out.split()))) == 2  # of other sizes
    Path("met_kernels.py").unlink()
    sys.modules.pop("met_kernels", None)
    for command in ("tune", "precompile"):
        out = " ".join(whet(command, "--missed", "-q").out.split())
        assert out.count("no such file") == 1
        assert "2 keys of gather" in out


@pytest.mark.medium
def test_a_recorded_pick_is_compiled_alone(whet: Whet) -> None:
    record()
    whet("tune", "--missed", "-q")
    told = json.loads(whet("precompile", "--missed", "--configs", "pick", "-q", "--json").out)
    assert [one["config"]["BLOCK"] for one in told["builds"]] == [32]


@pytest.mark.medium
def test_what_cannot_be_compiled_from_its_record_is_named_and_the_rest_is_compiled(
    whet: Whet, monkeypatch: pytest.MonkeyPatch
) -> None:
    record()
    monkeypatch.setenv("WHET_RECORD_VALUES", "0")
    record(333)
    ran = whet("precompile", "--missed", "-q")
    said = " ".join(ran.out.split())
    assert ran.code == 1
    assert "not compiled: gather(n=333" in said
    assert "2 of 2 compiled" in said


def test_precompile_without_missed_still_needs_a_kernel_and_an_architecture(whet: Whet) -> None:
    assert "'FILE.py:KERNEL'" in whet("precompile").err
    assert "--arch is required" in whet("precompile", "met_kernels.py:tuned").err
    assert "omit --keys" in whet("precompile", "--missed", "--keys", "n=3").err


@pytest.mark.medium
def test_a_record_stays_with_the_kernel_when_its_source_has_changed(whet: Whet) -> None:
    record()
    [before] = missed()
    Path("met_kernels.py").write_text(KERNELS.replace("other=0)", "other=1)  # changed"))
    sys.modules.pop("met_kernels", None)
    assert whet("tune", "--missed", "-q").code == 0
    [after] = missed(tuned=True)
    assert missed() == []
    assert after.workload.fingerprint != before.workload.fingerprint
    assert after.arguments == before.arguments
    assert whet("verify", "--missed", "-q").code == 0


def package_in(folder: Path) -> None:
    """An installed library: one kernel, reached through a package that imports it."""
    inside = folder / "met_library" / "ops"
    inside.mkdir(parents=True)
    (folder / "met_library" / "__init__.py").write_text("from met_library.ops import gathers\n")
    (inside / "__init__.py").write_text("")
    (inside / "gathers.py").write_text(KERNELS)


@pytest.fixture
def fleet(whet: Whet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A bundle of what a fleet met, brought to a machine with the library elsewhere; the working
    directory is empty there."""
    package_in(tmp_path / "fleet")
    monkeypatch.syspath_prepend(str(tmp_path / "fleet"))
    import met_library  # type: ignore[import-not-found]

    with package.mode("record"):
        call(met_library.ops.gathers.tuned)
    assert whet("pack", str(tmp_path / "fleet.whet"), "--missed").code == 0
    for name in [name for name in sys.modules if name.startswith("met_library")]:
        del sys.modules[name]
    (tmp_path / "fleet").rename(tmp_path / "gone")
    sys.path.remove(str(tmp_path / "fleet"))

    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "other.db"))
    assert whet("store", "merge", str(tmp_path / "fleet.whet")).code == 0
    return tmp_path


@pytest.mark.medium
def test_a_fleets_record_finds_an_installed_kernel_by_its_module(
    whet: Whet, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [miss] = missed()
    assert (miss.where, miss.module) == ("gathers.py:tuned", "met_library.ops.gathers")
    package_in(fleet / "site-packages")
    monkeypatch.syspath_prepend(str(fleet / "site-packages"))
    for command in ("precompile", "tune", "verify"):
        ran = whet(command, "--missed", "-q")
        assert ran.code == 0, (command, ran)
    assert missed() == []
    with package.mode("require"):
        import met_library

        assert call(met_library.ops.gathers.tuned) == 32


@pytest.mark.medium
def test_a_fleets_record_of_a_package_that_cannot_be_imported_uses_its_file_alone(
    whet: Whet, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package_in(fleet / "site-packages")
    (fleet / "site-packages" / "met_library" / "__init__.py").write_text("import missing_module\n")
    monkeypatch.syspath_prepend(str(fleet / "site-packages"))
    assert whet("tune", "--missed", "-q").code == 0
    assert missed() == []


@pytest.mark.medium
def test_a_fleets_record_of_a_module_that_is_not_here_names_it(whet: Whet, fleet: Path) -> None:
    ran = whet("tune", "--missed", "-q")
    assert ran.code == 1
    said = " ".join(ran.out.split())
    assert "gathers.py (module met_library.ops.gathers)" in said
    assert "whet tune FILE.py:NAME --missed" in said


@pytest.mark.medium
def test_a_strangers_bundle_does_not_have_any_module_imported(
    whet: Whet, fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = fleet / "site-packages" / "met_other.py"
    other.parent.mkdir()
    other.write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(other.parent))
    [miss] = missed()
    with package.open_store() as store:
        store.forget_missed([miss.workload.id])
        store.miss(replace(miss, module="met_other"))
    ran = whet("tune", "--missed", "-q")
    assert ran.code == 1
    assert "imported" not in ran.out + ran.err
    assert "met_other" not in sys.modules


@pytest.mark.medium
def test_a_key_recorded_under_buckets_of_a_policy_is_tuned_under_the_same_ones(
    whet: Whet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    policy = tmp_path / "whet.toml"
    policy.write_text('[[kernel]]\nmatch = "gather"\nbuckets = { n = "pow2" }\n')
    monkeypatch.setenv("WHET_POLICY", str(policy))
    record(5000)
    [miss] = missed()
    assert miss.workload.key["n"] == 8192
    monkeypatch.setenv("WHET_POLICY", "none")
    sys.modules.pop("met_kernels", None)
    ran = whet("tune", "--missed", "-q")
    said = " ".join(ran.out.split())
    assert ran.code == 1
    assert "gather(n=5000" in said
    assert "policy file" in said
    monkeypatch.setenv("WHET_POLICY", str(policy))
    sys.modules.pop("met_kernels", None)
    assert whet("tune", "--missed", "-q").code == 0
    assert missed() == []


@pytest.mark.medium
def test_a_pick_is_verified_under_the_policy_of_its_kernel_unless_an_option_says_otherwise(
    whet: Whet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from whet.engine.review import verify as review

    record()
    whet("tune", "--missed", "-q")
    policy = tmp_path / "whet.toml"
    policy.write_text('[[kernel]]\nmatch = "gather"\nrun_limit = 7\nl2 = "warm"\n')
    monkeypatch.setenv("WHET_POLICY", str(policy))
    seen: list[tuple[float, str]] = []
    engine = review.verify

    def measured(*given: Any, settings: Any, **options: Any) -> Any:
        seen.append((settings.run_limit_s, settings.l2))
        return engine(*given, settings=settings, **options)

    monkeypatch.setattr(review, "verify", measured)
    for options in ((), ("--l2", "cold")):
        sys.modules.pop("met_kernels", None)
        assert whet("verify", "--missed", "-q", *options).code == 0
    assert seen == [(7.0, "warm"), (7.0, "cold")]
