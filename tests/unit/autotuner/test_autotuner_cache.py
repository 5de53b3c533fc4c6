import json
import multiprocessing
import threading
import warnings
from pathlib import Path

import pytest

from whet.autotuner.cache import ConfigCache
from whet.core.errors import UsageError

CONFIG = {"BLOCK_M": 64, "num_warps": 4}


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_an_unknown_key_gives_none() -> None:
    assert ConfigCache().get("gemm", (64, 64), "cuda:0") is None


def test_what_was_set_is_got_back() -> None:
    cache = ConfigCache()
    cache.set("gemm", (64, 64), "cuda:0", CONFIG)
    assert cache.get("gemm", (64, 64), "cuda:0") == CONFIG


@pytest.mark.parametrize(
    "other",
    [("mlp", (64, 64), "cuda:0"), ("gemm", (64, 65), "cuda:0"), ("gemm", (64, 64), "cuda:1")],
)
def test_each_part_of_the_key_tells_entries_apart(other: tuple[str, tuple[int, ...], str]) -> None:
    cache = ConfigCache()
    cache.set("gemm", (64, 64), "cuda:0", CONFIG)
    assert cache.get(*other) is None


def test_changing_what_get_returned_does_not_change_the_cache() -> None:
    cache = ConfigCache()
    cache.set("gemm", (64,), "cpu", CONFIG)
    got = cache.get("gemm", (64,), "cpu")
    assert got is not None
    got["BLOCK_M"] = 1
    assert cache.get("gemm", (64,), "cpu") == CONFIG


def test_changing_a_config_after_set_does_not_change_the_cache() -> None:
    cache = ConfigCache()
    config = dict(CONFIG)
    cache.set("gemm", (64,), "cpu", config)
    config["BLOCK_M"] = 1
    assert cache.get("gemm", (64,), "cpu") == CONFIG


def test_a_later_set_replaces_the_earlier_one(tmp_path: Path) -> None:
    cache = ConfigCache(tmp_path)
    cache.set("gemm", (64,), "cpu", CONFIG)
    cache.set("gemm", (64,), "cpu", {"BLOCK_M": 128})
    assert cache.get("gemm", (64,), "cpu") == {"BLOCK_M": 128}
    assert len(_files(tmp_path)) == 1


def test_a_problem_size_given_as_a_list_is_the_same_key() -> None:
    cache = ConfigCache()
    cache.set("gemm", [64, 32], "cpu", CONFIG)
    assert cache.get("gemm", (64, 32), "cpu") == CONFIG


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ConfigCache().set("gemm", (64,), "cpu", CONFIG)
    assert _files(tmp_path) == []


def test_a_second_cache_on_the_folder_reads_what_the_first_wrote(tmp_path: Path) -> None:
    ConfigCache(str(tmp_path)).set("gemm", (64, (2, 3)), "cuda:0", {"tile": (8, 16)})
    reopened = ConfigCache(str(tmp_path))
    assert reopened.get("gemm", (64, (2, 3)), "cuda:0") == {"tile": (8, 16)}
    assert reopened.get_all_keys() == [("gemm", (64, (2, 3)), "cuda:0")]


def test_a_file_shows_its_key_to_a_reader(tmp_path: Path) -> None:
    ConfigCache(tmp_path).set("gemm", (64, 32), "NVIDIA H200", CONFIG)
    (file,) = _files(tmp_path)
    data = json.loads(file.read_text())
    assert (data["kernel_type"], data["problem_size"], data["device"]) == (
        "gemm",
        [64, 32],
        "NVIDIA H200",
    )
    assert data["config"] == CONFIG


def test_a_kernel_type_with_slashes_stays_inside_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = ConfigCache(folder)
    cache.set("../../etc/passwd\n", (1,), "a/b:0", CONFIG)
    assert cache.get("../../etc/passwd\n", (1,), "a/b:0") == CONFIG
    assert _files(tmp_path) == [folder]
    assert len(_files(folder)) == 1


def _write_from_another_process(folder: str) -> None:
    ConfigCache(folder).set("gemm", (64,), "cpu", {"BLOCK_M": 256})


@pytest.mark.medium
def test_get_sees_what_another_process_has_written_since(tmp_path: Path) -> None:
    cache = ConfigCache(tmp_path)
    cache.set("gemm", (64,), "cpu", CONFIG)
    other = multiprocessing.get_context("spawn").Process(
        target=_write_from_another_process, args=(str(tmp_path),)
    )
    other.start()
    other.join()
    assert other.exitcode == 0
    assert cache.get("gemm", (64,), "cpu") == {"BLOCK_M": 256}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v": 1}', '{"v": 99}', "\x00\xff"])
def test_a_corrupt_file_is_skipped_with_a_warning_and_kept(tmp_path: Path, text: str) -> None:
    ConfigCache(tmp_path).set("gemm", (64,), "cpu", CONFIG)
    (file,) = _files(tmp_path)
    file.write_text(text, encoding="latin-1")
    with pytest.warns(UserWarning, match=str(file)):
        assert ConfigCache(tmp_path).get("gemm", (64,), "cpu") is None
    assert file.read_text(encoding="latin-1") == text


def test_set_replaces_a_corrupt_file(tmp_path: Path) -> None:
    cache = ConfigCache(tmp_path)
    cache.set("gemm", (64,), "cpu", CONFIG)
    _files(tmp_path)[0].write_text("{")
    cache.set("gemm", (64,), "cpu", {"BLOCK_M": 32})
    assert ConfigCache(tmp_path).get("gemm", (64,), "cpu") == {"BLOCK_M": 32}


def test_an_entry_under_the_wrong_name_does_not_answer_for_another_key(tmp_path: Path) -> None:
    cache = ConfigCache(tmp_path)
    cache.set("gemm", (64,), "cpu", CONFIG)
    (mine,) = _files(tmp_path)
    cache.set("gemm", (128,), "cpu", {"BLOCK_M": 1})
    (other,) = [file for file in _files(tmp_path) if file != mine]
    mine.write_bytes(other.read_bytes())
    assert ConfigCache(tmp_path).get("gemm", (64,), "cpu") is None


def test_clear_forgets_and_deletes_its_own_files_only(tmp_path: Path) -> None:
    foreign = tmp_path / "notes.json"
    foreign.write_text("{}")
    cache = ConfigCache(tmp_path)
    cache.set("gemm", (64,), "cpu", CONFIG)
    cache.clear()
    assert cache.get("gemm", (64,), "cpu") is None
    assert cache.get_all_keys() == []
    assert _files(tmp_path) == [foreign]


def test_all_keys_are_those_of_memory_and_of_the_folder(tmp_path: Path) -> None:
    cache = ConfigCache(tmp_path)
    cache.set("gemm", (64,), "cpu", CONFIG)
    ConfigCache(tmp_path).set("mlp", (8, 8), "cuda:0", CONFIG)
    assert cache.get_all_keys() == [("gemm", (64,), "cpu"), ("mlp", (8, 8), "cuda:0")]


def test_a_value_that_json_cannot_hold_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"config\['dtype'\]"):
        ConfigCache().set("gemm", (64,), "cpu", {"dtype": object()})


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="cache_dir"):
        ConfigCache(file)


def test_a_write_that_fails_is_said_and_memory_still_remembers(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = ConfigCache(folder)
    folder.rmdir()
    with pytest.warns(UserWarning, match="could not save"):
        cache.set("gemm", (64,), "cpu", CONFIG)
    assert cache.get("gemm", (64,), "cpu") == CONFIG


@pytest.mark.medium
def test_threads_that_share_a_cache_lose_nothing_and_read_no_half_file(tmp_path: Path) -> None:
    cache = ConfigCache(tmp_path)
    wrong: list[object] = []

    def work(thread: int) -> None:
        try:
            for i in range(20):
                cache.set("shared", (0,), "cpu", {"pair": (i, i)})
                cache.set("own", (thread, i), "cpu", {"i": i})
                shared = ConfigCache(tmp_path).get("shared", (0,), "cpu")
                if shared is None or len(set(shared["pair"])) != 1:
                    wrong.append(shared)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert len(cache.get_all_keys()) == 4 * 20 + 1
    assert all(not file.name.startswith(".") for file in _files(tmp_path))


def test_a_file_that_whet_0_1_wrote_is_read_and_would_be_written_the_same(tmp_path: Path) -> None:
    name = "config-2a0c789ed220c9cc623af99e27178452.json"
    text = (
        '{\n  "v": 1,\n  "kernel_type": "gemm",\n  "problem_size": [\n    64,\n    32\n  ],\n'
        '  "device": "NVIDIA H200",\n  "config": {\n    "BLOCK_M": 64,\n    "num_warps": 4\n  }\n}'
    )
    (tmp_path / name).write_text(text)
    assert ConfigCache(tmp_path).get("gemm", (64, 32), "NVIDIA H200") == CONFIG
    ConfigCache(tmp_path).set("gemm", (64, 32), "NVIDIA H200", CONFIG)
    assert [(file.name, file.read_text()) for file in _files(tmp_path)] == [(name, text)]
