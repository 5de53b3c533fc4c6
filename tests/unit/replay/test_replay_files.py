"""A table on disk: the same table back, the same bytes again, and nothing from a bad file."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_samples import SPACES, a_large_table, a_table, tables

from whet.core.errors import UsageError
from whet.core.space import Space
from whet.core.status import Status
from whet.replay import Table, TableError, files, read_table, shipped, write_table
from whet.replay.files import table_bytes

PACKED = table_bytes(a_table())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def reread(packed: bytes, folder: Path) -> Table:
    path = folder / "one.whet.json.gz"
    path.write_bytes(packed)
    return read_table(path)


@pytest.mark.medium
@given(tables())
@pytest.mark.slow
def test_what_is_written_is_read_and_written_again_to_the_same_bytes(
    folder: Path, table: Table
) -> None:
    packed = table_bytes(table)
    assert packed == table_bytes(table)
    back = reread(packed, folder)
    assert back == table
    assert [dict(config) for config in back.configs] == [dict(config) for config in table.configs]
    assert packed == table_bytes(back)


def test_order_that_means_nothing_does_not_change_the_bytes() -> None:
    table = a_table()
    toolchain = {"triton": "3.6.0", "ptxas": "12.8"}
    turned = dict(reversed(toolchain.items()))
    one, two = (replace(table, toolchain=type(table.toolchain)(t)) for t in (toolchain, turned))
    assert table_bytes(one) == table_bytes(two)


def test_samples_come_back_to_the_nanosecond_and_stages_to_a_tenth_of_a_millisecond(
    folder: Path,
) -> None:
    table = reread(PACKED, folder)
    workload = table.workload({"dtype": "f16", "M": 64})
    assert workload.samples(0) == ((1000.0, 1010.0, 990.0), (1500.0,))
    assert workload.first_ns(0) == 4000.0
    assert workload.first_ns(1) is None
    assert workload.seconds(0) == {"measure": 0.25}
    assert workload.quality(1) == "contaminated"
    assert workload.error(2) == "out of resource: shared memory"
    assert table.builds[0].stages == {"ttir": 0.25}
    assert table.builds[0].facts == {"registers": 40}
    assert table.builds[2].status is Status.RESOURCES


@pytest.mark.parametrize("declared", SPACES)
def test_the_space_comes_back_as_it_was_declared(folder: Path, declared: Any) -> None:
    configs = a_table().configs if declared is None else tuple(declared.space())[:3]
    table = a_table(declared=declared, configs=configs)
    back = reread(table_bytes(table), folder)
    expected = Space(table.configs) if declared is None else declared.space()
    assert back.space.id == expected.id


def test_a_config_that_is_not_of_the_declared_space_is_refused(folder: Path) -> None:
    table = a_table(declared=SPACES[1])
    with pytest.raises(TableError, match="config BM=16 is not in its space"):
        reread(table_bytes(table), folder)


@pytest.mark.slow
def test_576_configs_64_sizes_12_samples_fit_in_a_megabyte_and_a_half(folder: Path) -> None:
    table = a_large_table(configs=576, workloads=64, visits=2, samples=6)
    packed = table_bytes(table)
    assert len(packed) <= 1_500_000
    assert reread(packed, folder) == table


@pytest.mark.medium
@given(st.integers(0, len(PACKED) - 1))
def test_a_file_that_is_cut_off_is_refused(folder: Path, length: int) -> None:
    with pytest.raises(TableError, match=r"one\.whet\.json\.gz"):
        reread(PACKED[:length], folder)


@pytest.mark.medium
@settings(max_examples=300)
@given(st.integers(0, len(PACKED) * 8 - 1))
def test_a_flipped_bit_is_refused_or_does_not_matter(folder: Path, bit: int) -> None:
    damaged = bytearray(PACKED)
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        table = reread(bytes(damaged), folder)
    except TableError as error:
        assert "one.whet.json.gz" in str(error)  # noqa: PT017 - the other way out is as good
    else:
        assert table == a_table()
        header, padding = bit // 8 < 10, bit // 8 == len(PACKED) - 9
        assert header or padding, "no other bits of a gzip file are without a meaning"


WRONG: list[Any] = [None, True, -7, 10**30, 0.5, "x", [], {}, [[]], ["x"], {"x": 1}, [10**30], "9"]


@pytest.mark.medium
@settings(max_examples=200)
@given(st.data())
def test_any_value_that_is_missing_or_of_another_kind_gives_a_table_or_a_clean_error(
    folder: Path, data: st.DataObject
) -> None:
    tree = json.loads(gzip.decompress(PACKED))
    place, at = data.draw(st.sampled_from(list(_places(tree))))
    if data.draw(st.booleans()):
        place[at] = data.draw(st.sampled_from(WRONG))
    else:
        del place[at]
    try:
        reread(gzip.compress(json.dumps(tree).encode(), mtime=0), folder)
    except TableError as error:
        assert "one.whet.json.gz" in str(error)  # noqa: PT017


def _places(tree: Any) -> Any:
    for at, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield tree, at
        if isinstance(value, dict | list):
            yield from _places(value)


def _edited(change: Callable[[dict[str, Any]], object]) -> bytes:
    tree = json.loads(gzip.decompress(PACKED))
    change(tree)
    return gzip.compress(json.dumps(tree).encode(), mtime=0)


@pytest.mark.parametrize(
    ("packed", "complaint"),
    [
        (b"", "not a table"),
        (b"not gzip at all", "not a table"),
        (gzip.compress(b"not JSON", mtime=0), "not a table"),
        (
            gzip.compress(b'{"format":"somebody-elses"}', mtime=0),
            "not a table .whet, Kernel Tuner",
        ),
        (gzip.compress(b'{"format":"whet-table",', mtime=0), "not valid JSON"),
        (
            gzip.compress(b'{"format":"whet-table","v":' + b"[" * 100_000, mtime=0),
            "not valid JSON",
        ),
        (PACKED + b"and more", "damaged"),
        (_edited(lambda t: t.update(v=2)), "version is 2.*update whet"),
        (_edited(lambda t: t.update(v="1")), "not a version number"),
        (_edited(lambda t: t.pop("builds")), "it has no 'builds'"),
        (_edited(lambda t: t["builds"]["seconds"].pop()), "2 entries for 3 configs"),
        (_edited(lambda t: t["workloads"][0]["samples"].pop()), "do not match their visits"),
        (_edited(lambda t: t["workloads"][0]["visits"].pop()), "match the number of configs"),
        (_edited(lambda t: t["workloads"][0]["visits"][0].append(10**15)), "do not match their"),
        (_edited(lambda t: t["workloads"][0].update(status="9--")), "not in the legend"),
        (_edited(lambda t: t["workloads"][0].update(errors={"3": "x"})), "no config number '3'"),
        (_edited(lambda t: t["workloads"].append(t["workloads"][0])), "a key is listed twice"),
        (_edited(lambda t: t["configs"]["columns"][0].__setitem__(0, 1)), "listed twice"),
        (_edited(lambda t: t["configs"]["columns"][0].__setitem__(0, 5)), "that is not listed"),
        (
            _edited(
                lambda t: t.update(space={"parameters": [], "constraints": ["__import__('os')"]})
            ),
            "inconsistent",
        ),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(folder: Path, packed: bytes, complaint: str) -> None:
    with pytest.raises(TableError, match=complaint) as refusal:
        reread(packed, folder)
    assert "one.whet.json.gz" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("name", ["nowhere", "x" * 5000, "a\0b", ""])
def test_a_name_that_is_no_table_is_refused(name: str) -> None:
    with pytest.raises(TableError):
        read_table(name)


def test_a_file_that_unzips_to_no_end_is_refused_before_it_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LARGEST_BYTES", 1 << 20)
    with pytest.raises(TableError, match="decompresses to more than 1 MiB"):
        reread(zlib.compress(b" " * (1 << 22), wbits=31), folder)


def test_a_table_is_found_by_its_path_and_a_shipped_one_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SHIPPED", tmp_path)
    write_table(a_table(), tmp_path / "h200-gemm-576.whet.json.gz")
    assert shipped() == ("h200-gemm-576",)
    assert read_table("h200-gemm-576") == a_table()
    assert read_table(str(tmp_path / "h200-gemm-576.whet.json.gz")) == a_table()
    with pytest.raises(TableError, match="did you mean 'h200-gemm-576'"):
        read_table("h200-gem-576")


@pytest.mark.medium
def test_every_shipped_table_can_be_read() -> None:
    for name in shipped():
        assert read_table(name).workloads


def test_writing_replaces_a_table_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "one.whet.json.gz"
    write_table(a_table(kernel="before"), path)
    write_table(a_table(), path)
    assert read_table(path) == a_table()
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_cannot_be_written_under_a_name_nobody_would_find(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.whet\.json\.gz"):
        write_table(a_table(), tmp_path / "one.json")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot write .*nowhere/one\.whet\.json\.gz"):
        write_table(a_table(), tmp_path / "nowhere" / "one.whet.json.gz")
