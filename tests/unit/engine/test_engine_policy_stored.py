"""A policy leaves an index in the cache folder; with it, without it or with a broken one, the
same rules count."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whet.core.errors import SettingsError
from whet.engine.policy import indexing, stored
from whet.engine.policy.finding import current_policy, known_policy
from whet.engine.policy.reading import read_policy, rules_in_parts
from whet.engine.policy.rules import Policy
from whet.engine.policy.stored import StoredPolicy

RULE = '[[kernel]]\nmatch = "lib.m{n}:kernel_{n}"\nmode = "cached"\nbuckets = {{ T = "pow2" }}\n\n'
MANY = 400


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(indexing, "_SETTLED_NS", 10**15)  # however slow this machine is
    return tmp_path / "cache" / "whet" / "policies"


def long_text(mode: str = "cached") -> str:
    return "".join(RULE.format(n=n) for n in range(MANY)).replace("cached", mode)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "whet.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def said(policy: Policy, kernel: str, module: str = "lib.m7") -> dict[str, tuple[object, str]]:
    return {
        name: (ruling.value, policy.place(ruling.rule, name))
        for name, ruling in policy.rulings(kernel, [module]).items()
    }


def indexed(path: Path) -> StoredPolicy:
    """As the second process sees it."""
    known_policy(path)
    policy = known_policy(path)
    assert isinstance(policy, StoredPolicy)
    return policy


@pytest.mark.medium
def test_the_second_reader_finds_the_same_rules_and_lines(tmp_path: Path) -> None:
    path = written(tmp_path, long_text())
    policy, whole = indexed(path), read_policy(path)
    for n in (0, 7, MANY - 1):
        assert said(policy, f"kernel_{n}", f"lib.m{n}") == said(whole, f"kernel_{n}", f"lib.m{n}")
        assert said(policy, f"kernel_{n}", f"lib.m{n}")["mode"] == ("cached", f"{path}:{5 * n + 3}")
    assert "rules" not in vars(policy), "nobody needed them all"
    assert policy.rules == whole.rules
    assert policy.matching("kernel_7", ["lib.m7"]) == whole.matching("kernel_7", ["lib.m7"])
    assert not said(policy, "kernel_7", "elsewhere")


def test_a_file_without_rules_leaves_nothing_behind(tmp_path: Path, cache: Path) -> None:
    assert known_policy(written(tmp_path, "# none yet\n")).rules == ()
    assert not cache.exists()


@pytest.mark.medium
def test_a_changed_file_counts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_POLICY", str(tmp_path / "whet.toml"))
    for mode in ("cached", "tune", "off", "cached"):
        path = written(tmp_path, long_text(mode))
        for _ in range(2):
            stored_policy = current_policy()
            assert stored_policy is not None
            assert said(stored_policy, "kernel_7")["mode"][0] == mode
            assert said(known_policy(path), "kernel_7")["mode"][0] == mode


def test_a_change_that_keeps_size_and_time_counts(tmp_path: Path) -> None:
    path = written(tmp_path, long_text("tune"))
    indexed(path)
    before = path.stat()
    written(
        tmp_path,
        long_text("tune").replace('m7:kernel_7"\nmode = "tune', 'm7:kernel_7"\nl2 = "warm'),
    )
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "mode" not in said(known_policy(path), "kernel_7")


def damages(data: bytes) -> Iterator[bytes]:
    yield b""
    yield b"something else"
    yield data[:-1]
    yield data + b"\0"
    yield data[: len(data) // 2]
    for place in range(0, len(data), len(data) // 40):
        yield data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]


@pytest.mark.slow
def test_a_damaged_index_is_ignored_and_written_again(tmp_path: Path, cache: Path) -> None:
    path = written(tmp_path, long_text())
    expected = said(indexed(path), "kernel_7")
    [file] = cache.iterdir()
    good = file.read_bytes()
    for damaged in damages(good):
        file.write_bytes(damaged)
        assert said(known_policy(path), "kernel_7") == expected
        assert file.read_bytes() == good
        assert isinstance(known_policy(path), StoredPolicy)


def settled(path: Path, cache: Path) -> Path:
    """The index by which a file is known that has not been written to for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "_SETTLED_NS", -(10**15))
        known_policy(path)
    return cache / f"{stored.name_by_stat(path.stat())}{stored.SUFFIX}"


@pytest.mark.medium
def test_a_file_that_has_settled_is_known_without_being_read(tmp_path: Path, cache: Path) -> None:
    path = written(tmp_path, long_text())
    quick = settled(path, cache)
    for file in cache.iterdir():
        if file != quick:
            file.unlink()
    policy = known_policy(path)
    assert isinstance(policy, StoredPolicy)
    assert said(policy, "kernel_7") == said(read_policy(path), "kernel_7")


def test_a_file_that_was_just_written_is_known_by_its_bytes_alone(
    tmp_path: Path, cache: Path
) -> None:
    path = written(tmp_path, long_text())
    indexed(path)
    assert f"{stored.name_by_stat(path.stat())}{stored.SUFFIX}" not in os.listdir(cache)
    assert len(os.listdir(cache)) == 1


def test_a_change_that_keeps_size_and_time_counts_in_a_file_that_had_settled(
    tmp_path: Path, cache: Path
) -> None:
    path = written(tmp_path, long_text("tune"))
    settled(path, cache)
    before = path.stat()
    path.write_text(
        long_text("tune").replace('m7:kernel_7"\nmode = "tune', 'm7:kernel_7"\nl2 = "warm')
    )
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_ino == before.st_ino
    assert "mode" not in said(known_policy(path), "kernel_7")


@pytest.mark.slow
def test_a_damaged_index_of_a_file_that_had_settled_is_written_again(
    tmp_path: Path, cache: Path
) -> None:
    path = written(tmp_path, long_text())
    quick = settled(path, cache)
    good, expected = quick.read_bytes(), said(read_policy(path), "kernel_7")
    for damaged in damages(good):
        quick.write_bytes(damaged)
        assert said(known_policy(path), "kernel_7") == expected
    assert settled(path, cache).read_bytes() == good


LOOK = """
import sys
{before}
from whet.engine.policy.finding import current_policy
known = set(sys.modules)
assert current_policy().rulings("kernel_7", ["lib.m7"])["mode"].value == "cached"
print(*sorted(set(sys.modules) - known))
"""

DECORATED = """
import triton, whet
def kernel_7(x, n): pass
whet.autotune(configs=[triton.Config({})], key=["n"])(triton.jit(kernel_7))
"""


def look_imports(path: Path, cache: Path, folder: Path, before: str) -> set[str]:
    """What the first look of a process imports, where an earlier one has left the index."""
    settled(path, cache)
    program = folder / "program.py"  # which Triton wants to read
    program.write_text(LOOK.format(before=before))
    environ = {**os.environ, "WHET_POLICY": str(path)}
    words = [sys.executable, str(program)]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.medium
def test_a_first_look_imports_nothing_heavy(tmp_path: Path, cache: Path) -> None:
    found = look_imports(written(tmp_path, RULE.format(n=7)), cache, tmp_path, "")
    heavy = {"numpy", "tomllib", "dataclasses", "inspect", "hashlib", "tempfile", "difflib"}
    assert not found & heavy
    assert {name for name in found if name.startswith("whet.")} == {
        "whet.core.frozen",
        "whet.core.files",
        "whet.engine.policy.rules",
        "whet.engine.policy.stored",
    }


@pytest.mark.medium
def test_a_first_look_imports_two_small_modules_where_a_kernel_is_decorated(
    tmp_path: Path, cache: Path
) -> None:
    pytest.importorskip("triton")
    found = look_imports(written(tmp_path, long_text()), cache, tmp_path, DECORATED)
    assert found == {"whet.engine.policy.rules", "whet.engine.policy.stored"}


@pytest.mark.medium
def test_an_index_of_another_policy_is_not_used(tmp_path: Path, cache: Path) -> None:
    path = written(tmp_path, long_text("tune"))
    indexed(path)
    [other] = cache.iterdir()
    alien = other.read_bytes()
    other.unlink()
    written(tmp_path, long_text("off"))
    indexed(path)
    [file] = cache.iterdir()
    file.write_bytes(alien)
    assert said(known_policy(path), "kernel_7")["mode"][0] == "off"


@pytest.mark.medium
def test_an_index_that_leads_to_no_rule_is_given_up(tmp_path: Path, cache: Path) -> None:
    """Such a file has a right checksum, so only a mistake of ours could write it."""
    path = written(tmp_path, long_text())
    expected = said(read_policy(path), "kernel_7")
    policy = indexed(path)
    vars(policy)["_places"]._starts = vars(policy)["_places"]._starts[:3]
    assert said(policy, "kernel_7") == expected
    assert not list(cache.iterdir())


def test_an_index_that_others_may_write_is_not_read(tmp_path: Path, cache: Path) -> None:
    path = written(tmp_path, long_text())
    indexed(path)
    [file] = cache.iterdir()
    file.chmod(0o666)
    assert not isinstance(known_policy(path), StoredPolicy)
    assert isinstance(known_policy(path), StoredPolicy), "it was replaced by one of our own"
    assert not file.stat().st_mode & 0o022


def test_an_index_behind_a_link_is_not_read(tmp_path: Path, cache: Path) -> None:
    path = written(tmp_path, long_text())
    indexed(path)
    [file] = cache.iterdir()
    file.rename(tmp_path / "moved")
    file.symlink_to(tmp_path / "moved")
    assert not isinstance(known_policy(path), StoredPolicy)
    assert not file.is_symlink()


@pytest.mark.medium
@pytest.mark.parametrize("place", ["a file", "a folder without permission", "no folder at all"])
def test_a_cache_folder_that_cannot_be_used_stops_nothing(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "unusable"
    if place == "a file":
        folder.write_text("")
    elif place == "a folder without permission":
        if os.geteuid() == 0:
            monkeypatch.setattr(indexing, "write_whole", _refused)
        folder.mkdir(mode=0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere" if place[0] == "n" else str(folder))
    path = written(tmp_path, long_text())
    for _ in range(2):
        policy = known_policy(path)
        assert not isinstance(policy, StoredPolicy)
        assert said(policy, "kernel_7")["mode"][0] == "cached"


def _refused(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


@pytest.mark.medium
def test_a_mistake_in_a_long_file_is_told_every_time_with_its_line(
    tmp_path: Path, cache: Path
) -> None:
    text = long_text().replace('m7:kernel_7"\nmode', 'm7:kernel_7"\nmoed')
    path = written(tmp_path, text)
    for _ in range(2):
        with pytest.raises(SettingsError, match=r"whet.toml:38: 'moed' is not a setting"):
            known_policy(path)
    assert not cache.exists()


@pytest.mark.medium
def test_other_ends_of_lines_and_other_letters(tmp_path: Path) -> None:
    text = ("# Größe\n" + long_text()).replace("m7:kernel_7", "größe:kernel_7") + RULE.format(n="é")
    for content in (text.encode(), text.replace("\n", "\r\n").encode()):
        path = written(tmp_path, content)
        policy = indexed(path)
        assert said(policy, "kernel_7", "lib.größe") == said(
            read_policy(path), "kernel_7", "lib.größe"
        )
        assert said(policy, "kernel_7", "lib.größe")["mode"] == ("cached", f"{path}:39")
        assert said(policy, "kernel_é", "lib.mé")["mode"][0] == "cached"


@pytest.mark.medium
def test_few_indexes_are_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "_MOST_FILES", 3)
    for n in range(6):
        path = written(tmp_path, f"# {n}\n{long_text()}")
        indexed(path)
        assert len(list(cache.iterdir())) == min(n + 1, 3)


PART = st.text("ab*?[.", min_size=1, max_size=4)
NAME = st.text("ab[", min_size=1, max_size=4)
LINES = st.sampled_from(
    ['mode = "off"', 'l2 = "warm"', 'effort = "quick"', "isolate = true", 'budget = "3s"']
)
WRITTEN = st.builds(
    lambda patterns, lines, gap: "\n".join(
        [
            "[[kernel]]" if gap else "  [[ kernel ]] # so",
            f'match = "{patterns[0]}"' if len(patterns) == 1 else f"match = {patterns}",
            *dict.fromkeys(lines),
            "\n" * gap,
        ]
    ),
    st.lists(st.builds("{}:{}".format, PART, PART), min_size=1, max_size=2),
    st.lists(LINES, max_size=3),
    st.integers(0, 2),
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WRITTEN, min_size=1, max_size=8), NAME, NAME)
def test_any_policy_says_the_same_by_its_index(
    tmp_path: Path, rules: list[str], kernel: str, module: str
) -> None:
    path = written(tmp_path, "\n".join(rules))
    policy, whole = indexed(path), read_policy(path)
    assert policy.rulings(kernel, [module]) == whole.rulings(kernel, [module])
    assert "rules" not in vars(policy)


TRICKY = {
    "a header in a string": '[[kernel]]\nmatch = "a"\nbudget = """\n[[kernel]]\nmatch = "b"\n"""\n',
    "a header in a list": "[[kernel]]\nmatch = [\n[[kernel]]\n]\n",
    "no match": "[[kernel]]\nmode = 'off'\n",
    "two matches": '[[kernel]]\nmatch = "a"\nmatch = "b"\n',
    "a match below a table": '[[kernel]]\nmatch = "a"\n[kernel.match]\nx = 1\n',
    "an odd space at the end": '[[kernel]]\nmatch = "a"\n\x0c',
    "another table": '[[kernel]]\nmatch = "a"\n[other]\n',
    "something before": 'x = 1\n[[kernel]]\nmatch = "a"\n',
}


@pytest.mark.parametrize("text", TRICKY.values(), ids=list(TRICKY))
def test_what_is_wrong_is_not_hidden_by_reading_in_parts(text: str, tmp_path: Path) -> None:
    assert rules_in_parts(text) is None
    with pytest.raises(SettingsError):
        read_policy(written(tmp_path, text))


def test_a_list_of_rules_in_one_statement_is_read_as_a_whole(tmp_path: Path) -> None:
    many = ", ".join(f'{{ match = "kernel_{n}", mode = "off" }}' for n in range(MANY))
    path = written(tmp_path, f"kernel = [{many}]")
    for _ in range(2):
        policy = known_policy(path)
        assert not isinstance(policy, StoredPolicy)
        assert len(policy.rules) == MANY


def test_tables_below_a_rule_belong_to_it(tmp_path: Path) -> None:
    text = (
        long_text()
        + '[[kernel]]\nmatch = "own"\n[kernel.buckets]\nT = [4]\n[[kernel.add]]\nB = 1\n'
    )
    policy = indexed(written(tmp_path, text))
    assert said(policy, "own")["buckets.T"] == ((4,), f"{policy.path}:{5 * MANY + 3}")
    assert list(said(policy, "own")) == ["buckets.T", "add"]


def test_settings_keep_their_order_and_their_kinds(tmp_path: Path) -> None:
    rule = (
        '[[kernel]]\nmatch = "own"\nbudget = "30s"\nmode = "off"\nadd = [{ B = 1.5, C = "x" }]\n'
        'buckets = { T = [8, 64], N = "none" }\ncheck = "bitwise"\nl2_bytes = "1M"\n'
    )
    path = written(tmp_path, long_text() + rule)
    found, expected = (
        policy.rulings("own", ["m"]) for policy in (indexed(path), read_policy(path))
    )
    assert list(found.items()) == list(expected.items())
