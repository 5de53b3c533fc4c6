"""`whet pack` and `whet store merge` of a bundle, and commands that read a bundle where it lies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runs import Whet, refused
from whet.core.space import Space
from whet.engine.fallback.inheritance import models_beside, refresh_models
from whet.store import open_if_there, open_store
from whet.testing.samples import a_run, a_trial, a_workload

KEY = "cd" * 16
MATMUL, SOFTMAX = a_workload(), a_workload(kernel="softmax", key={"N": 512})


@pytest.fixture(autouse=True)
def _filled() -> None:
    with open_store("filled.db") as store:
        for workload in (MATMUL, SOFTMAX):
            store.put_workload(workload)
            store.append([a_trial(workload, {"BM": 64}, 9.0), a_trial(workload, {"BM": 32}, 7.0)])
            store.save_run(a_run(workload, {"BM": 32}))
    Path("compiled", KEY).mkdir(parents=True)
    Path("compiled", KEY, "metadata.json").write_text("{}")
    Path("compiled", KEY, "k.ptx").write_text("// ptx")


@pytest.fixture
def packed(whet: Whet) -> str:
    assert whet(
        *("pack", "b.whet", "--store", "filled.db", "--binaries", "compiled")
    ).code == 0  # fmt: skip
    return "b.whet"


def test_packing_says_what_went_in(whet: Whet) -> None:
    ran = whet("pack", "b.whet", "--store", "filled.db", "--kernel", "matmul", "--best-only")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("b.whet: 1 kernel, 1 workload, 1 trial, 1 run (")


def test_packing_without_a_store_writes_nothing(whet: Whet) -> None:
    ran = whet("pack", "b.whet", "--store", "nowhere.db")
    assert ran.code == 1
    assert "no results" in ran.err
    assert not Path("b.whet").exists()


def test_compiled_kernels_alone_can_be_packed(whet: Whet) -> None:
    ran = whet("pack", "b.whet", "--store", "nowhere.db", "--binaries", "compiled")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("b.whet: 1 compiled kernel (")
    assert not Path("nowhere.db").exists()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernel", "matmull"), "did you mean 'matmul'?"),
        (("--binaries", "nowhere"), "cannot read the directory of binaries nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(
    whet: Whet, arguments: tuple[str, ...], message: str
) -> None:
    ran = whet("pack", "b.whet", "--store", "filled.db", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err
    assert not Path("b.whet").exists()


def test_packing_over_another_file_is_refused(whet: Whet) -> None:
    assert "not a bundle" in refused(whet("pack", "filled.db", "--store", "filled.db"))


def test_the_list_shows_what_is_in_a_bundle(whet: Whet, packed: str) -> None:
    ran = whet("store", "merge", packed, "--list", "--store", "new.db")
    assert ran.code == 0
    assert "2 kernels, 2 workloads, 4 trials, 2 runs, 1 compiled kernel" in " ".join(
        ran.out.split()
    )
    assert "Test CPU; cpu; x86_64; 6.1" in ran.out
    assert "tools    gcc 12.2.0" in ran.out
    assert "softmax" in ran.out
    assert max(map(len, ran.out.splitlines()[1:])) <= 80
    assert not Path("new.db").exists()


def test_the_list_for_programs(whet: Whet, packed: str) -> None:
    listed = json.loads(whet("store", "merge", packed, "--list", "--json").out)
    assert listed["v"] == 1
    assert [kernel["name"] for kernel in listed["kernels"]] == ["matmul", "softmax"]
    assert listed["models"] == []
    assert listed["binaries"] == [KEY]
    assert "store.jsonl" in listed["entries"]


@pytest.mark.medium
def test_unpacking_merges_into_a_store_once(whet: Whet, packed: str) -> None:
    ran = whet("store", "merge", packed, "--store", "new.db", "--binaries", "out")
    assert ran.code == 0
    assert "2 workloads, 4 trials, 2 runs, 1 compiled kernel new" in ran.out
    assert whet("best", "--store", "new.db").out == whet("best", "--store", "filled.db").out
    assert Path("out", KEY, "k.ptx").read_text() == "// ptx"
    told = json.loads(whet("store", "merge", packed, "--store", "new.db", "--json").out)
    (again,) = told["merged"]
    assert set(again["new"].values()) == {0}
    assert again["binaries_left"] == 1


@pytest.mark.medium
def test_a_hostile_bundle_is_one_line_and_code_2_and_makes_no_store(
    whet: Whet, packed: str
) -> None:
    data = bytearray(Path(packed).read_bytes())
    data[len(data) // 2] ^= 0xFF
    Path(packed).write_bytes(data)
    for arguments in (("--store", "new.db", "--binaries", "out"), ("--store", "new.db")):
        ran = whet("store", "merge", packed, *arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "was rejected" in ran.err
    assert not Path("new.db").exists()
    assert not Path("out").exists()


@pytest.mark.medium
def test_best_and_trials_read_the_bundle_in_use(
    whet: Whet, packed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_BUNDLE", packed)
    found = json.loads(whet("best", "matmul", "--store", "new.db", "--json").out)
    assert [one["config"] for one in found["best"]] == [{"BM": 32}]
    assert whet("show", "trials", "matmul", "--store", "new.db").code == 0
    assert not Path("new.db").exists()


@pytest.mark.medium
def test_keeping_house_leaves_the_bundle_in_use_alone(
    whet: Whet, packed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store("new.db").close()
    monkeypatch.setenv("WHET_BUNDLE", packed)
    assert "0 workloads" in whet("store", "stats", "--list", "--store", "new.db").out
    assert "nothing" in whet("pack", "empty.whet", "--store", "new.db").out


def test_the_setting_is_shown(whet: Whet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_BUNDLE", "b.whet")
    shown = json.loads(whet("settings", "--json").out)["settings"]["bundle"]
    assert shown == {"value": "b.whet", "source": "environment", "where": "WHET_BUNDLE"}


@pytest.mark.medium
def test_a_bundle_takes_the_cost_model_along(whet: Whet) -> None:
    space = Space({"BM": [16, 32, 64, 128, 256], "stages": [1, 2, 3]})
    sizes = [a_workload(kernel="sized", key={"M": 128 << n}) for n in range(6)]
    with open_store("sized.db") as store:
        for workload in sizes:
            store.put_workload(workload)
            store.append(a_trial(workload, config, 1.0 + config["stages"]) for config in space)
    packing = whet("pack", "sized.whet", "--store", "sized.db")
    assert "1 model" in packing.out
    with open_if_there("nowhere.db", bundle="sized.whet") as over, open_store("sized.db") as own:
        assert list(models_beside(own)) == []
        assert refresh_models(own) == 1
        (name,) = models_beside(own)
        assert models_beside(over)[name] == models_beside(own)[name]
    assert whet("store", "merge", "sized.whet", "--store", "taken.db").code == 0
    assert [path.stem for path in Path("taken.db.models").iterdir()] == [name]
