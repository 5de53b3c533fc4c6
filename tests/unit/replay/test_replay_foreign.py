"""Kernel Tuner caches and T4 files, whole and cut off."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.config import Config
from whet.core.status import Status
from whet.replay import TableError, read_kernel_tuner, read_t4, read_table


def cache_entry(bx: int, method: str, time: Any, **more: Any) -> dict[str, Any]:
    return {"bx": bx, "method": method, "time": time, **more}


CACHE = {
    "device_name": "NVIDIA A100",
    "kernel_name": "convolve",
    "problem_size": [4096, 4096],
    "tune_params_keys": ["bx", "method"],
    "tune_params": {"bx": [16, 32], "method": ["a", "b"]},
    "objective": "time",
    "cache": {
        "16,a": cache_entry(
            16,
            "a",
            1.5,
            times=[1.4, 1.5, 1.6],
            compile_time=918.59,
            verification_time=2.0,
            benchmark_time=126.38,
            strategy_time=0,
            framework_time=105.24,
            timestamp="2023-12-22 09:54:05.502007+00:00",
        ),
        "16,b": cache_entry(16, "b", "CompilationFailedConfig", compile_time=10.0),
        "32,a": cache_entry(32, "a", "RuntimeFailedConfig"),
        "32,b": cache_entry(32, "b", 0.25),
    },
}


def t4_result(bx: int, invalidity: str, runtimes: list[float], **more: Any) -> dict[str, Any]:
    times = {"compilation": 344.74, "framework": 35.5, "validation": 0, "runtimes": runtimes}
    return {"configuration": {"bx": bx}, "times": times, "invalidity": invalidity, **more}


T4 = {
    "metadata": {"timeunit": "miliseconds"},
    "results": [
        t4_result(16, "correct", [2.0, 2.5, 2.25], timestamp="2023-12-21 11:23:46+00:00"),
        t4_result(32, "compile", []),
        t4_result(48, "timeout", []),
        t4_result(64, "correct", [], measurements=[{"name": "time", "value": 1.0, "unit": ""}]),
        t4_result(80, "something new", []),
    ],
    "schema_version": "1.0.0",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("foreign")


def written(folder: Path, data: Any, name: str = "convolution-RTX_3090.json") -> Path:
    path = folder / name
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_kernel_tuner_cache_is_a_table_of_one_workload(folder: Path, name: str) -> None:
    table = read_kernel_tuner(written(folder, CACHE, name))
    (workload,) = table.workloads
    assert (table.kernel, table.device.name, table.device.vendor) == (
        "convolve",
        "NVIDIA A100",
        "nvidia",
    )
    assert workload.key == {"problem_size": (4096, 4096)}
    assert table.configs[0] == Config(bx=16, method="a")
    assert workload.statuses == (Status.OK, Status.BUILD_ERROR, Status.RUN_ERROR, Status.OK)
    assert workload.samples(0) == ((1_400_000, 1_500_000, 1_600_000),)
    assert workload.samples(3) == ((250_000,),)
    assert workload.optimum is not None
    assert workload.optimum.index == 3
    assert workload.seconds(0) == {"check": 0.002, "framework": 0.1052, "measure": 0.1264}
    assert workload.error(2) == "RuntimeFailedConfig"
    assert [build.status for build in table.builds] == [
        Status.OK,
        Status.BUILD_ERROR,
        Status.OK,
        Status.OK,
    ]
    assert [build.seconds for build in table.builds] == [0.9186, 0.01, None, None]
    assert (table.origin.source, table.origin.date) == ("kernel-tuner", "2023-12-22")
    assert table.notes == ()


def test_a_t4_file_is_a_table_of_one_workload_named_by_its_file(folder: Path) -> None:
    table = read_t4(written(folder, T4, "convolution-RTX_3090.t4.json.gz"))
    (workload,) = table.workloads
    assert (table.kernel, table.device.name) == ("convolution", "RTX 3090")
    assert workload.statuses == (
        Status.OK,
        Status.BUILD_ERROR,
        Status.RUN_TIMEOUT,
        Status.OK,
        Status.RUN_ERROR,
    )
    assert workload.samples(0) == ((2_000_000, 2_500_000, 2_250_000),)
    assert workload.median_ns(3) == 1_000_000
    assert workload.error(4) == "something new"
    assert table.builds[0].seconds == 0.3447
    assert (table.origin.source, table.origin.date) == ("t4", "2023-12-21")


@pytest.mark.parametrize("data", [CACHE, T4])
def test_whose_format_it_is_shows_in_the_file(folder: Path, data: Any) -> None:
    assert read_table(written(folder, data)).origin.source in ("kernel-tuner", "t4")


def test_a_cache_without_its_closing_braces_is_read_and_says_so(folder: Path) -> None:
    text = json.dumps(CACHE, indent=0).encode()
    open_ended = text.rstrip(b"}\n ") + b"},\n"
    table = read_table(written(folder, open_ended))
    assert len(table.configs) == 4
    [note] = table.notes
    assert "first 4 configs" in note


@pytest.mark.medium
@pytest.mark.parametrize("data", [CACHE, T4])
@given(share=st.floats(0, 1))
def test_a_file_cut_off_anywhere_gives_its_first_configs_or_a_clean_error(
    folder: Path, data: Any, share: float
) -> None:
    text = json.dumps(data).encode()
    whole = read_table(written(folder, text))
    path = written(folder, text[: int(len(text) * share)])
    try:
        table = read_table(path)
    except TableError as error:
        assert str(path) in str(error)  # noqa: PT017 - both ways out are right ones
    else:
        assert table.configs == whole.configs[: len(table.configs)]
        assert table.notes or table == whole


@pytest.mark.medium
def test_a_gzip_that_ends_too_soon_gives_what_comes_before(folder: Path) -> None:
    entries = {str(at): cache_entry(at, "a", 1.0 + at / 977) for at in range(2000)}
    packed = gzip.compress(json.dumps({**CACHE, "cache": entries}).encode())
    path = folder / "cut.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    table = read_table(path)
    assert 100 < len(table.configs) < 2000
    assert "truncated" in table.notes[0]


def test_a_result_that_is_none_is_left_out_and_counted(folder: Path) -> None:
    broken = {"16,c": 5, "16,d": {"bx": 16, "method": "d"}, "16,e": {"time": 1.0}}
    table = read_table(written(folder, {**CACHE, "cache": {**broken, **CACHE["cache"]}}))  # type: ignore[dict-item]
    assert len(table.configs) == 4
    [note] = table.notes
    assert note.endswith("not valid: 3")


def test_of_a_config_that_is_listed_twice_the_first_result_counts(folder: Path) -> None:
    results = [t4_result(16, "correct", [2.0]), t4_result(16, "correct", [9.0])]
    table = read_table(written(folder, {**T4, "results": results}))
    assert table.workloads[0].samples(0) == ((2_000_000,),)
    [note] = table.notes
    assert note.endswith("already listed: 1")


@pytest.mark.parametrize("time", [1e20, float("nan"), float("inf"), -1.0, 0, None, True, 10**400])
def test_a_time_that_is_none_is_a_failure(folder: Path, time: Any) -> None:
    cache = {"16,a": cache_entry(16, "a", time, compile_time=time), "16,b": cache_entry(16, "b", 1)}
    workload = read_table(written(folder, {**CACHE, "cache": cache})).workloads[0]
    assert workload.statuses == (Status.RUN_ERROR, Status.OK)


def test_a_cache_that_comes_before_the_names_is_read_all_the_same(folder: Path) -> None:
    turned = dict(reversed(CACHE.items()))
    assert read_table(written(folder, turned)) == read_table(written(folder, CACHE))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({**CACHE, "cache": {}}, "no complete result in 'cache'"),
        ({**T4, "results": []}, "no complete result in 'results'"),
        ({**T4, "metadata": {"timeunit": "fortnights"}}, "unknown time unit 'fortnights'"),
        ({"kernel_name": "x"}, "is not a table"),
        ([1, 2], "is not a table"),
    ],
)
def test_what_is_no_table_is_refused_by_name(folder: Path, data: Any, complaint: str) -> None:
    path = written(folder, data)
    with pytest.raises(TableError, match=complaint) as refusal:
        read_table(path)
    assert str(path) in str(refusal.value)
