"""`whet settings --kernel` and `--check`: what a policy file says, and what is wrong with it."""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runs import Whet, refused

pytest.importorskip("triton")

import whet as library
from whet.core.frozen import FrozenMap
from whet.core.miss import Miss
from whet.core.workload import Device, Origin, Workload
from whet.engine.policy import finding

LIBRARY = """
import triton, triton.language as tl

def kernels(key):
    return triton.autotune([triton.Config({"BLOCK": b}) for b in (16, 32)], key=[key])

@kernels("n")
@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    tl.store(out, tl.load(x) * 2)

@kernels("m")
@triton.jit
def halve(out, x, m, BLOCK: tl.constexpr):
    tl.store(out, tl.load(x) / 2)
"""


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> Iterator[None]:
    """What torch has made is not gone through again and again for kernels that are alive."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "policed_lib.py").write_text(LIBRARY)
    (tmp_path / "train.py").write_text("import policed_lib\n")
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    monkeypatch.delenv("WHET_POLICY", raising=False)
    monkeypatch.setattr(finding, "_given", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("policed_lib", None)
    gc.collect()
    yield tmp_path
    sys.modules.pop("policed_lib", None)
    library.uninstall()


def policy(text: str) -> Path:
    path = Path("whet.toml").absolute()
    path.write_text(text)
    return path


def rule(match: str, text: str) -> str:
    return f'[[kernel]]\nmatch = "{match}"\n{text}\n'


@pytest.mark.medium
def test_the_settings_of_a_kernel_name_the_file_and_the_line(whet: Whet) -> None:
    path = policy(
        rule("lib.*:*", 'mode = "cached"\nbuckets = { n = "pow2", m = [16, 64] }')
        + rule("lib.ops:double", 'l2_bytes = "1M"\nadd = [{ BLOCK = 64 }]\ncheck = "agree"')
    )
    ran = whet("settings", "--kernel", "lib.ops:double", "--json")
    told = json.loads(ran.out)
    assert (told["kernel"], told["policy"]) == ("lib.ops:double", str(path))
    ruled = {n: one for n, one in told["settings"].items() if one["source"] == "policy"}
    assert {name: (one["value"], one["where"]) for name, one in ruled.items()} == {
        "mode": ("cached", f"{path}:3"),
        "buckets.n": ("pow2", f"{path}:4"),
        "buckets.m": ([16, 64], f"{path}:4"),
        "l2_bytes": (2**20, f"{path}:7"),
        "add": ([{"BLOCK": 64}], f"{path}:8"),
        "check": ("agree", f"{path}:9"),
    }
    assert told["settings"]["budget"]["source"] == "default"


@pytest.mark.medium
def test_the_table_has_the_same_for_people(whet: Whet) -> None:
    path = policy(rule("double", 'mode = "cached"\nleave_out = [{ BLOCK = 64, num_warps = 8 }]'))
    ran = whet("settings", "--kernel", "double")
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines() if line.split()}
    assert ran.code == 0
    assert rows["mode"][1:] == ["cached", "policy", "line", "3"]
    assert f"Thepolicyis{path}." in "".join(ran.out.split())  # a long path has several lines
    assert rows["leave_out"][1:3] == ["[BLOCK=64", "num_warps=8]"]
    assert "give MODULE:KERNEL" in " ".join(ran.out.split())
    assert ran.widest <= 80


@pytest.mark.medium
def test_the_module_of_a_stored_kernel_is_read_off_its_file(whet: Whet, program: Path) -> None:
    policy(rule("fla.ops.*:chunk", 'mode = "off"') + rule("other.*:chunk", 'l2 = "warm"'))
    workload = Workload(
        "chunk",
        "f",
        Device("gpu", "nvidia", "sm_90"),
        origin=Origin(places=("/env/lib/fla/ops/gla/chunk.py:chunk",)),
    )
    with library.open_store(program / "store.db") as store:
        store.miss(Miss(workload))
    told = json.loads(whet("settings", "--kernel", "chunk", "--json").out)["settings"]
    assert told["mode"]["value"] == "off"
    assert told["l2"]["source"] == "default"
    ran = whet("settings", "--check")
    assert ran.code == 1
    assert "'other.*:chunk' matches no" in ran.out
    assert "fla.ops" not in ran.out


def test_without_a_policy_the_settings_of_a_kernel_say_so(whet: Whet) -> None:
    assert "no policy" in whet("settings", "--kernel", "double").out
    err = refused(whet("settings", "--check"))
    assert "whet.toml" in err
    assert "WHET_POLICY" in err


@pytest.mark.medium
@pytest.mark.parametrize("where", [("train.py",), ("--module", "policed_lib")])
def test_rules_that_match_nothing_do_not_fit_or_disagree_are_named(
    whet: Whet, where: tuple[str, ...]
) -> None:
    path = policy(
        rule("doubel", 'mode = "off"')
        + rule("policed_lib:*", 'buckets = { n = "pow2", T = "pow2" }')
        + rule("policed_lib:d*", 'effort = "quick"\nl2 = "warm"')
        + rule("policed_lib:*e", 'effort = "full"\nl2 = "warm"')
        + rule("halve", "add = [{ BLOK = 64 }]")
    )
    ran = whet("settings", "--check", *where)
    lines = ran.out.splitlines()

    assert ran.code == 1
    assert lines[0].startswith(f"{path}:2: 'doubel' matches no")
    assert lines[0].endswith("mean 'double'?")
    assert lines[1].startswith(f"{path}:6: buckets.T fits no kernel that the rule matches: 'T' is")
    assert lines[2].startswith(f"{path}:13: effort disagrees with line 9: both rules are about")
    assert lines[3].startswith(f"{path}:17: add does not fit 'halve': it has no parameter 'BLOK'")
    # Kernels of other tests may be alive in this process.
    assert len(lines) == 5
    assert re.fullmatch(
        rf"5 rules in {re.escape(str(path))}, \d+ known kernels: 4 problems", lines[4]
    )


@pytest.mark.medium
@pytest.mark.parametrize(
    ("match", "said"),
    [
        ("Policed_Lib.*:*", "; did you mean module 'policed_lib'?"),
        ("policy_lib:*", "; did you mean module 'policed_lib'?"),
        ("somewhere.else:halv*", "; kernels of that name are in 'policed_lib'"),
        ("somewhere.else:*", ""),
    ],
)
def test_a_rule_for_nobody_names_the_module_that_may_be_meant(
    whet: Whet, match: str, said: str
) -> None:
    path = policy(rule(match, 'mode = "off"'))
    line = whet("settings", "--check", "train.py").out.splitlines()[0]
    assert line.startswith(f"{path}:2: '{match}' matches no")
    assert line.endswith(f"kernel{said}")


@pytest.mark.medium
def test_a_config_that_fits_no_kernel_is_named_beside_one_that_does(whet: Whet) -> None:
    path = policy(rule("policed_lib:*", "leave_out = [{ BLOCK = 16 }, { BLOK = 16 }]"))
    lines = whet("settings", "--check", "train.py").out.splitlines()
    assert lines[0].startswith(
        f"{path}:3: leave_out fits no kernel that the rule matches: it has no parameter 'BLOK'"
    )


@pytest.mark.slow
def test_a_policy_in_order_is_code_0(whet: Whet) -> None:
    path = policy(rule("policed_lib:*", 'buckets = { n = "pow2" }') + rule("halve", 'mode = "off"'))
    ran = whet("settings", "--check", "train.py")
    assert (ran.code, ran.err) == (0, "")
    wanted = rf"2 rules in {re.escape(str(path))}, \d+ known kernels: no problems\n"
    assert re.fullmatch(wanted, ran.out)
    told = json.loads(whet("settings", "--check", "train.py", "--json").out)
    assert told.pop("kernels") >= 2
    assert told == {"v": 1, "policy": str(path), "problems": []}


def test_rules_with_the_same_pattern_disagree_whatever_the_kernels_are(whet: Whet) -> None:
    policy(rule("a*", 'mode = "off"') + rule("a*", 'mode = "cached"\nl2 = "warm"'))
    ran = whet("settings", "--check")
    assert ran.code == 1
    assert ":6: mode disagrees with line 3" in ran.out
    assert "FILE.py or a --module" in ran.out


@pytest.mark.medium
def test_a_file_is_looked_for_beside_the_program_that_was_named(
    whet: Whet, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = policy(rule("halve", 'mode = "off"'))
    (program / "elsewhere").mkdir()
    monkeypatch.chdir(program / "elsewhere")
    assert f"1 rule in {path}," in whet("settings", "--check", "../train.py").out


def test_a_broken_policy_is_one_line(whet: Whet) -> None:
    path = policy(rule("halve", "mode = off"))
    for command in (("settings", "--check"), ("settings", "--kernel", "halve")):
        ran = whet(*command)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"whet: {path}:3: not valid TOML: ")
        assert ran.err.count("\n") == 1


@pytest.mark.medium
def test_a_module_that_is_not_there_is_one_line(whet: Whet) -> None:
    policy("")
    assert "'no_such_module'" in refused(whet("settings", "--check", "-m", "no_such_module"))


def met(program: Path, kernel: str, **key: int) -> None:
    workload = Workload(kernel, "f", Device("gpu", "nvidia", "sm_90"), key=FrozenMap(key))
    with library.open_store(program / "store.db") as store:
        store.miss(Miss(workload, f"/env/fla/ops/{kernel}.py:{kernel}", module="fla.ops.gla"))


def test_a_recorded_kernel_goes_by_the_module_it_was_recorded_in(whet: Whet, program: Path) -> None:
    met(program, "chunk", n=4)
    policy(rule("fla.ops.gla:chunk", 'mode = "off"') + rule("fla.ops.chunk:chunk", 'l2 = "warm"'))
    told = json.loads(whet("settings", "--kernel", "chunk", "--json").out)["settings"]
    assert told["mode"]["source"] == "policy"
    assert told["l2"]["source"] == "default"


def test_a_bucket_that_is_not_in_the_key_of_a_stored_kernel_is_said_to_be_skipped(
    whet: Whet, program: Path
) -> None:
    met(program, "chunk", BT=64, NB=5)
    policy(rule("fla.*:*", 'buckets = { NB = "pow2", T = "pow2" }'))
    ran = whet("settings", "--kernel", "chunk")
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in ran.out.splitlines() if line}
    assert rows["buckets.NB"].startswith("pow2 policy")
    assert rows["buckets.T"].startswith("skipped: not in its key (")
    assert ran.widest <= 80


def test_settings_of_a_kernel_that_nobody_met_name_the_one_that_may_be_meant(
    whet: Whet, program: Path
) -> None:
    met(program, "chunk_gla_fwd_kernel_o", BT=64)
    policy(rule("chunk_gla_*", 'mode = "off"'))
    said = " ".join(whet("settings", "--kernel", "chunk_gla_fwd_kernel_0").out.split())
    assert "'chunk_gla_fwd_kernel_0' is not" in said
    assert "mean 'chunk_gla_fwd_kernel_o'?" in said


@pytest.mark.medium
def test_a_check_against_the_store_alone_says_so(whet: Whet, program: Path) -> None:
    met(program, "chunk", BT=64)
    policy(rule("fla.modules.*:conv_*", 'mode = "off"'))
    said = " ".join(whet("settings", "--check").out.split())
    assert "Known are" in said
    assert "FILE.py or a --module" in said
    assert "Known are" not in whet("settings", "--check", "train.py").out


@pytest.mark.medium
def test_a_bucket_that_fits_none_of_several_kernels_names_the_keys_there_are(whet: Whet) -> None:
    policy(rule("policed_lib:*", 'buckets = { T = "pow2" }'))
    out = whet("settings", "--check", "train.py").out
    assert "buckets.T fits no" in out
    assert re.search(r"which have (n, m|m, n)$", out, re.MULTILINE)
