"""The policy file: which rule counts, where it is found, and what is wrong with it."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import SettingsError
from whet.engine.policy import finding
from whet.engine.policy.finding import current_policy, policy_path
from whet.engine.policy.reading import (
    MOST_BYTES,
    RULE_SETTINGS,
    line_of,
    read_policy,
    rule_lines,
)
from whet.engine.policy.rules import Pattern, Policy


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "whet.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(folder: Path, text: str | bytes) -> str:
    path = written(folder, text)
    with pytest.raises(SettingsError) as caught:
        read_policy(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path)) or str(path) in message
    return message.replace(str(path), "FILE")


def mode_of(policy: Policy, kernel: str, module: str = "lib.ops") -> object:
    found = policy.rulings(kernel, [module])
    return found["mode"].value if "mode" in found else None


def test_every_setting_is_read_as_the_settings_have_it(tmp_path: Path) -> None:
    text = """
[[kernel]]
match = ["fla.ops.*:chunk_*", "matmul"]
mode = "cached"
effort = "quick"
budget = "30s"
isolate = true
check = "agree"
l2 = "warm"
l2_bytes = "64M"
build_limit = "2m"
run_limit = 5
memory = "2G"
device_memory = "1G"
buckets = { T = "pow2", N = [16, 256], K = "none" }
add = [{ BLOCK = 64, num_warps = 4 }]
leave_out = [{ num_warps = 8 }]
"""
    [rule] = read_policy(written(tmp_path, text)).rules

    assert rule.patterns == (Pattern("fla.ops.*", "chunk_*"), Pattern("*", "matmul"))
    assert dict(rule.values) == {
        "mode": "cached",
        "effort": "quick",
        "budget": Budget(seconds=30.0),
        "isolate": True,
        "check": "agree",
        "l2": "warm",
        "l2_bytes": 64 * 2**20,
        "build_limit": 120.0,
        "run_limit": 5.0,
        "memory": 2 * 2**30,
        "device_memory": 2**30,
        "buckets.T": "pow2",
        "buckets.N": (16, 256),
        "buckets.K": None,
        "add": (Config(BLOCK=64, num_warps=4),),
        "leave_out": (Config(num_warps=8),),
    }
    assert {name.partition(".")[0] for name in rule.values} == set(RULE_SETTINGS)


def test_the_most_specific_rule_wins_for_each_setting_by_itself(tmp_path: Path) -> None:
    text = """
[[kernel]]
match = "lib.ops:matmul"
mode = "off"

[[kernel]]
match = "*"
mode = "cached"
effort = "quick"

[[kernel]]
match = "lib.*:mat*"
mode = "require"
l2 = "warm"
"""
    policy = read_policy(written(tmp_path, text))
    found = policy.rulings("matmul", ["lib.ops"])

    assert {name: ruling.value for name, ruling in found.items()} == {
        "mode": "off",
        "effort": "quick",
        "l2": "warm",
    }
    assert [policy.line(found[name].rule, name) for name in ("mode", "effort", "l2")] == [4, 9, 14]
    assert mode_of(policy, "matvec") == "require"
    assert mode_of(policy, "softmax") == "cached"


def test_the_order_of_specificity() -> None:
    order = ["*", "*mul", "lib.*:mat*", "lib.ops:*", "matmul", "lib.*:matmul", "lib.ops:matmul"]
    found = [Pattern.parse(text).specificity for text in order]
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_of_two_equally_specific_rules_the_later_one_wins(tmp_path: Path) -> None:
    two = '[[kernel]]\nmatch = "a*b"\nmode = "{}"\n[[kernel]]\nmatch = "ab*"\nmode = "{}"\n'
    assert mode_of(read_policy(written(tmp_path, two.format("off", "cached"))), "ab") == "cached"
    assert mode_of(read_policy(written(tmp_path, two.format("cached", "off"))), "ab") == "off"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[[kernel]]\nmatch = nope\n",
            "FILE:2: not valid TOML: Invalid value; put text in quotes: ",
        ),
        (
            "mode: off\n",
            "FILE:1: not valid TOML: Expected '=' after a key in a key/value pair; write",
        ),
        ('{"kernel": []}', "FILE:1: not valid TOML: Invalid statement; write [[kernel]] and below"),
        (
            '[[kernel]]\nmatch = "a"\n[kernel]\nmode = "off"\n',
            "FILE:3: not valid TOML: Cannot declare ('kernel',) twice; begin each rule with",
        ),
        (
            '[[kernel]]\nmatch = "a"\nl2 = "warm"\nl2 = "cold"\n',
            "FILE:4: not valid TOML: Cannot overwrite a value; it is given twice in this rule",
        ),
        ('[[kernel]]\rmatch = "a"\r', "FILE:1: not valid TOML: Expected newline"),
        ('[[kernel]]\nmatch = "a"\n"\\u001bmode" = 1\n', "FILE:1: '�mode' is not a setting"),
        ('[[kernel]]\nmatch = "a"\nmode = "of', "FILE:3: not valid TOML: "),
        (b"[[kernel]]\n# \xff\n", "FILE:2: not UTF-8; save the file as UTF-8"),
        (b"\x00", "FILE:1: not valid TOML: "),
        ("\n\nkernels = 3\n", "FILE:3: 'kernels' is not known; did you mean '[[kernel]]'?"),
        ("kernel = 3\n", "FILE:1: 'kernel' is not a list of rules; write [[kernel]]"),
        ('\n[kernel]\nmatch = "a"\n', "FILE:2: 'kernel' is not a list of rules"),
        ('[[kernel]]\nmatch = "a"\n[other]\n', "FILE:3: 'other' is not known"),
        ('[[kernel]]\nmatch = "a"\n[kernel.match]\nx = 1\n', "FILE:3: not valid TOML: "),
        ("[[kernel]]\nmatch = [\n[[kernel]]\n]\n", "FILE:3: not valid TOML: Invalid value"),
        ('[[kernel]]\nmode = "off"\n', "FILE:1: the rule has no match"),
        ("[[kernel]]\nmatch = 3\n", "FILE:2: match = 3 is not valid; use"),
        ("[[kernel]]\nmatch = []\n", "FILE:2: match = [] is not valid"),
        ('[[kernel]]\nmatch = "a:b:c"\n', "FILE:2: match = 'a:b:c' is not valid"),
        ('[[kernel]]\nmatch = ":b"\n', "FILE:2: match = ':b' is not valid"),
        ('[[kernel]]\nmatch = "a b"\n', "FILE:2: match = 'a b' is not valid"),
        (
            '[[kernel]]\nmatch = "a"\n\nbugdet = "3s"\n',
            "FILE:4: 'bugdet' is not a setting of a kernel; did you mean 'budget'?",
        ),
        ('[[kernel]]\nmatch = "a"\nmode = "fast"\n', "FILE:3: mode = 'fast' is not valid; use"),
        ('[[kernel]]\nmatch = "a"\nmode = 1979-05-27\n', "FILE:3: mode = datetime.date"),
        ('[[kernel]]\nmatch = "a"\nbudget = -3\n', "FILE:3: budget = -3 is not valid; use a time"),
        ('[[kernel]]\nmatch = "a"\nisolate = 1\n', "FILE:3: isolate = 1 is not valid; use yes"),
        ('[[kernel]]\nmatch = "a"\ncheck = true\n', "FILE:3: check = True is not valid; use"),
        ('[[kernel]]\nmatch = "a"\nbuckets = "pow2"\n', "FILE:3: buckets = 'pow2' is not valid"),
        (
            '[[kernel]]\nmatch = "a"\nbuckets.T = "pow3"\n',
            "FILE:3: unknown bucket 'pow3' for 'T'; did you mean 'pow2'?",
        ),
        ('[[kernel]]\nmatch = "a"\n\n[kernel.buckets]\nT = []\n', "FILE:4: the bucket of 'T' is"),
        ('[[kernel]]\nmatch = "a"\nadd = { B = 1 }\n', "FILE:3: add = {'B': 1} is not valid"),
        ('[[kernel]]\nmatch = "a"\nadd = [{}]\n', "FILE:3: add = [{}] is not valid"),
        ('[[kernel]]\nmatch = "a"\nleave_out = [{ B = [1] }]\n', "FILE:3: leave_out = "),
        ('[[kernel]]\nmatch = "a"\nleave_out = [\n{ B = inf }]\n', "FILE:3: "),
        (
            'kernel = [\n  { match = "a", mode = "off" },\n  { match = "b", mode = 1 },\n]\n',
            "FILE:1: mode = 1 is not valid",
        ),
        (
            '[[kernel]]\nmatch = "a" # [[kernel]]\nl2 = """\nwarm"""\n[[kernel]]\nmatch = "b"\n'
            'l2 = "hot"\n',
            "FILE:7: l2 = 'hot' is not valid; use cold or warm",
        ),
        ("a = " + "[" * 20_000, "FILE:1: nested too deeply; shorten this rule"),
        (
            f"[[kernel]]\nmatch = 'b'\n[[kernel]]\nmatch = 'a'\nrun_limit = {'9' * 5000}\n",
            "FILE:3: a number is too long; shorten this rule",
        ),
        (f"[[kernel]]\nmatch = 'a'\nmode = '{'x' * 100_000}'\n", "FILE:3: mode = 'xxx"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_the_file_and_the_line(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    message = refusal(tmp_path, text)
    assert message.startswith(said)
    assert len(message) < 600


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        read_policy(tmp_path / "missing.toml")
    with pytest.raises(SettingsError, match="is a folder; name the file in it"):
        read_policy(tmp_path)
    with pytest.raises(SettingsError, match="is not a file"):
        read_policy(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError, match="is not a file"):
        read_policy(tmp_path / "pipe")
    with pytest.raises(SettingsError, match="cannot read policy file"):
        read_policy(tmp_path / ("x" * 5000))
    huge = tmp_path / "huge.toml"
    with huge.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(SettingsError, match="is larger than 16 MiB"):
        read_policy(huge)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    path.chmod(0)
    with pytest.raises(SettingsError, match="Permission denied"):
        read_policy(path)


@pytest.mark.medium
@given(st.binary(max_size=60) | st.text("[]kernel=\"\n'{},.#match ", max_size=60).map(str.encode))
def test_any_file_is_a_policy_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = written(tmp_path_factory.getbasetemp(), content)
    said = f"{path}:"
    try:
        read_policy(path)
    except SettingsError as error:
        said = str(error)
    assert said.startswith(f"{path}:")
    assert "\n" not in said


def test_a_mark_of_the_encoding_and_windows_ends_of_lines_change_nothing(tmp_path: Path) -> None:
    text = '\ufeff[[kernel]]\r\nmatch = "a"\r\nmode = "off"\r\n'
    policy = read_policy(written(tmp_path, text.encode()))
    assert mode_of(policy, "a") == "off"
    assert policy.line(policy.rules[0], "mode") == 3


def test_letters_other_than_ascii(tmp_path: Path) -> None:
    text = '# Größe\n[[kernel]]\nmatch = "lib.größe:kernel_é"\nmode = "off"\n'
    policy = read_policy(written(tmp_path, text))
    assert mode_of(policy, "kernel_é", "lib.größe") == "off"
    assert policy.line(policy.rules[0], "mode") == 4


def test_tables_below_a_rule_belong_to_it(tmp_path: Path) -> None:
    text = '[[kernel]]\nmatch = "own"\n[kernel.buckets]\nT = [4]\n[[kernel.add]]\nB = 1\n'
    policy = read_policy(written(tmp_path, text))
    found = policy.rulings("own", ["m"])
    assert {name: ruling.value for name, ruling in found.items()} == {
        "buckets.T": (4,),
        "add": (Config(B=1),),
    }
    assert policy.place(found["buckets.T"].rule, "buckets.T") == f"{policy.path}:3"


def test_rules_may_stand_in_one_statement(tmp_path: Path) -> None:
    many = ", ".join(f'{{ match = "kernel_{n}", mode = "off" }}' for n in range(40))
    policy = read_policy(written(tmp_path, f"kernel = [{many}]"))
    assert len(policy.rules) == 40
    assert mode_of(policy, "kernel_39") == "off"


def test_an_empty_file_has_no_rules(tmp_path: Path) -> None:
    assert read_policy(written(tmp_path, "# nothing yet\n")).rules == ()


def test_a_pattern_of_many_stars_takes_no_time(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, f'[[kernel]]\nmatch = "{"*a" * 40}b"\nmode = "off"\n'))
    assert mode_of(policy, "a" * 60) is None


def test_lines_are_found_whatever_stands_in_strings_and_comments() -> None:
    text = (
        "# [[kernel]]\n"
        "[[kernel]] # match = \n"
        'match = "a=b[[kernel]]"\n'
        "'mode' = '''\n[[kernel]]\nmode = 1\n'''\n"
        "add = [\n  # ]\n  { A = 1 },\n]\n"
        "  [ kernel . buckets ]\n"
        '"T" = "pow2"\n'
        "[[kernel]]\n"
        'l2 . x = 1\nmatch = """a\\"""b"""\nbudget=1\n'
        "[[kernel.leave_out]]\nB = 1\n"
    )
    lines = rule_lines(text, "kernel")
    assert {key: lines[0, key] for key in ("", "match", "mode", "add", "buckets")} == {
        "": 2,
        "match": 3,
        "mode": 4,
        "add": 8,
        "buckets": 12,
    }
    assert [line_of(lines, 1, key) for key in ("", "l2", "match", "budget", "leave_out")] == [
        14,
        15,
        16,
        17,
        18,
    ]
    assert line_of(lines, 1, "unknown") == 14


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folders of a program and of the shell that started it."""
    beside, here = tmp_path / "program", tmp_path / "here"
    beside.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("WHET_POLICY", raising=False)
    monkeypatch.setattr(finding, "_given", [])
    monkeypatch.setitem(
        sys.modules,
        "__main__",
        SimpleNamespace(__file__=str(beside / "train.py")),  # type: ignore[arg-type]
    )
    return beside, here


def test_the_file_beside_the_program_comes_before_that_of_the_working_directory(
    program: tuple[Path, Path],
) -> None:
    beside, here = program
    assert current_policy() is None
    written(here, '[[kernel]]\nmatch = "a"\nmode = "off"\n')
    assert policy_path() == here / "whet.toml"
    written(beside, '[[kernel]]\nmatch = "a"\nmode = "cached"\n')
    policy = current_policy()
    assert policy is not None
    assert policy.path == beside / "whet.toml"
    assert mode_of(policy, "a") == "cached"


def test_the_variable_names_another_file_or_none(
    program: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(program[0], "not TOML")
    monkeypatch.setenv("WHET_POLICY", "none")
    assert current_policy() is None
    monkeypatch.setenv("WHET_POLICY", str(written(tmp_path, "")))
    empty = current_policy()
    assert empty is not None
    assert (empty.path, empty.rules) == (tmp_path / "whet.toml", ())
    monkeypatch.setenv("WHET_POLICY", str(tmp_path / "gone.toml"))
    with pytest.raises(SettingsError, match=r"gone\.toml does not exist"):
        current_policy()


def test_a_program_without_a_file_uses_the_working_directory(
    program: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace())  # type: ignore[arg-type]
    written(program[1], "")
    assert policy_path() == program[1] / "whet.toml"


def test_a_file_is_read_once_until_it_changes(
    program: tuple[Path, Path],
) -> None:
    path = written(program[0], '[[kernel]]\nmatch = "a"\nmode = "off"\n')
    first = current_policy()
    assert current_policy() is first
    path.write_text('[[kernel]]\nmatch = "a"\nmode = "cached"\n')
    later = current_policy()
    assert later is not None
    assert mode_of(later, "a") == "cached"


def test_a_change_that_keeps_size_and_time_counts(program: tuple[Path, Path]) -> None:
    path = written(program[0], '[[kernel]]\nmatch = "a"\nmode = "off"\n')
    current_policy()
    before = path.stat()
    path.write_text('[[kernel]]\nmatch = "b"\nmode = "off"\n')
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    later = current_policy()
    assert later is not None
    assert mode_of(later, "a") is None


def test_a_mistake_is_told_every_time(program: tuple[Path, Path]) -> None:
    written(program[0], '[[kernel]]\nmatch = "a"\nmoed = "off"\n')
    for _ in range(2):
        with pytest.raises(SettingsError, match=r"whet.toml:3: 'moed' is not a setting"):
            current_policy()


LOOK = """
import sys
from whet.engine.policy.finding import current_policy
known = set(sys.modules)
policy = current_policy()
assert policy is None or policy.rulings("k", ["m"])["mode"].value == "cached"
print(*sorted(set(sys.modules) - known))
"""


@pytest.mark.medium
def test_a_first_look_imports_what_toml_takes_and_nothing_where_there_is_no_file(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, '[[kernel]]\nmatch = "m:k"\nmode = "cached"\n')
    for policy in ("none", str(path)):
        words = [sys.executable, "-c", LOOK]
        environ = {**os.environ, "WHET_POLICY": policy}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
        found = set(done.stdout.split())
        if policy == "none":
            assert not found
        else:
            assert "tomllib" in found
            assert not found & {"numpy", "tempfile", "difflib", "hashlib", "sqlite3"}


def test_a_link_that_leads_nowhere_is_an_error_and_not_no_policy(
    program: tuple[Path, Path],
) -> None:
    (program[0] / "whet.toml").symlink_to("gone.toml")
    with pytest.raises(SettingsError, match="does not exist"):
        current_policy()
