"""`whet schedule show`: the steps of a schedule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, refused
from schedule_copies import in_copies
from whet.core.intermediate import FACT, kept_stages
from whet.store import open_store

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")
pytestmark = pytest.mark.medium

KERNEL = """
import whet
from whet.targets.schedule.payloads import matmul

product = whet.schedule(matmul(64, 64, 64))
plain = whet.function(lambda a: a, {"a": [1, 2]}, isolate=False)
"""


THREE = """
import whet
from whet.targets.schedule.frontend import ScheduleBuilder
from whet.targets.schedule.payloads import matmul


def script(vectorize):
    s = ScheduleBuilder()
    t = s.knob("t", [8])
    s.tile(s.match("linalg.matmul"), [t, 16, 4])
    if vectorize:
        s.vectorize()
    s.bufferize()
    s.lower()
    return s


tiled = whet.schedule(matmul(32, 32, 32), script(False), name="tiled")
vectorized = whet.schedule(matmul(32, 32, 32), script(True), name="vectorized")
"""


THIRD = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %t = transform.tune.knob<"t"> options = [8] -> !transform.param<i64>
    transform.yield
  }
}
"""


@pytest.fixture(autouse=True)
def _kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    in_copies(monkeypatch)
    Path("kernel.py").write_text(KERNEL)


def show(whet: Whet, *options: str) -> Any:
    return whet("schedule", "kernel.py:product", *options)


def test_steps_are_listed_with_their_places(whet: Whet) -> None:
    ran = show(whet)
    assert ran.code == 0
    assert ran.out.startswith(
        "config  ti=8 tj=32 tk=4 bi=64 bj=64 bk=256 pack=b k=whole order=rows"
    )
    assert "0  the payload" in ran.out
    assert "transform.bufferization.one_shot_bufferize  matmul.mlir:" in ran.out


@pytest.mark.slow
def test_the_ir_after_a_step_and_between_two(whet: Whet) -> None:
    Path("kernel.py").write_text(THREE.replace("tiled =", "product ="))
    steps = json.loads(show(whet, "--json").out)["steps"]
    at = next(one["number"] for one in steps if "tile_using_for" in one["operation"])
    assert show(whet, "--step", "0").out == steps[0]["ir"].rstrip() + "\n"
    changed = show(whet, "--diff", str(at - 1), str(at)).out
    assert changed.startswith(f"--- step {at - 1}\n+++ step {at}\n")
    assert "scf.for" in changed
    assert "same IR" in show(whet, "--diff", "0", "0").out


@pytest.mark.slow
def test_another_config_is_shown_with_set(whet: Whet) -> None:
    assert "vector." in show(whet, "--json").out
    assert "vector." not in show(whet, "--json", "--set", "vectorize=no").out.replace(
        "transform.apply_patterns.vector.", ""
    )


def test_a_script_alone_is_shown_for_a_payload(whet: Whet) -> None:
    from whet.targets.schedule.payloads import matmul as product
    from whet.targets.schedule.target import schedule

    Path("mine.mlir").write_text(schedule(product(64, 64, 64)).script.text)
    ran = whet("schedule", "mine.mlir", "--payload", "matmul(64, 64, 64)")
    assert ran.code == 0, ran.err
    assert "transform.bufferization.one_shot_bufferize  mine.mlir:" in ran.out
    Path("payload.mlir").write_text(product(64, 64, 64).text)
    Path("mine.mlir").write_text(THIRD)
    assert "t=8" in whet("schedule", "mine.mlir", "--payload", "payload.mlir").out
    for payload, message in (
        ("matmull(1, 2, 3)", "no payload 'matmull'; did you mean 'matmul'?"),
        ("matmul(1, two)", "give its sizes as numbers, such as 'matmul(64, 64, 64)'"),
    ):
        assert message in refused(whet("schedule", "mine.mlir", "--payload", payload))


def test_what_is_legal_is_said_of_each_operation(whet: Whet) -> None:
    said = whet("schedule", "kernel.py:product", "--suggest").out
    assert "linalg.matmul: loops 0, 1, 2 of 64 × 64 × 64\n" in said
    assert "not 2:" in said
    listed = json.loads(whet("schedule", "kernel.py:product", "--suggest", "--json").out)
    assert [one["label"] for one in listed["operations"]] == ["linalg.fill", "linalg.matmul"]


@pytest.mark.slow
def test_schedules_are_compared_by_what_was_measured_and_kept_for_the_explorer(whet: Whet) -> None:
    Path("kernel.py").write_text(THREE)
    for name in ("tiled", "vectorized"):
        assert whet("tune", f"kernel.py:{name}", "--store", "s.db").code == 0
    both = ("schedule", "kernel.py:tiled", ":vectorized", "--store", "s.db")
    ran = whet(*both)
    assert ran.code == 0, ran.err
    assert [line.split()[0] for line in ran.out.splitlines() if "×" in line] == [
        "tiled",
        "vectorized",
    ]
    assert "one number" in ran.out
    assert "vectors of" in ran.out
    with open_store("s.db") as store:
        ids = {one.workload.kernel: one.workload.id for one in store.workloads()}
        best = store.best(ids["vectorized"])
    assert ran.out.splitlines()[-1] == (
        f"http://127.0.0.1:8642/#compare?w={ids['tiled']}&b={ids['vectorized']}"
    )
    assert best is not None
    assert best.timing is not None
    assert best.timing.interval_ns is not None
    assert "vector." in kept_stages(Path("s.db.ir"), best.facts[FACT])["scheduled"]
    first, second = json.loads(whet(*both, "--json").out)["schedules"]
    assert first["input_ir"] == second["input_ir"]
    assert "vector." not in first["output_ir"]
    assert "vector." in second["output_ir"]


@pytest.mark.slow
def test_a_store_in_memory_keeps_nothing_to_look_at(whet: Whet) -> None:
    Path("kernel.py").write_text(THREE)
    asked = ("schedule", "kernel.py:tiled", ":vectorized", "--store", ":memory:")
    ran = whet(*asked)
    assert ran.code == 0, ran.err
    assert "#compare" not in ran.out
    assert "a file" in refused(whet(*asked, "--explore"))


@pytest.mark.slow
def test_scripts_alone_are_compared_on_a_payload(whet: Whet) -> None:
    from whet.targets.schedule.payloads import matmul as product
    from whet.targets.schedule.target import schedule

    text = schedule(product(32, 32, 32)).script.text
    for name in ("one", "two"):
        Path(name).mkdir()
        Path(name, "mine.mlir").write_text(f"// {name}\n{text}")
    both = ("schedule", "one/mine.mlir", "two/mine.mlir", "--budget", "1trials")
    ran = whet(*both, "--payload", "matmul(32, 32, 32)", "--store", "s.db")
    assert ran.code == 0, ran.err
    assert [line.split()[0] for line in ran.out.splitlines() if "×" in line] == [
        "one/mine.mlir",
        "two/mine.mlir",
    ]
    err = refused(whet(*both))
    assert "one/mine.mlir: " in err
    assert "--payload" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "1s"], "--budget is only for several schedules"),
        ([":other", "--step", "1"], "--step is only for one schedule"),
    ],
)
def test_one_and_several_have_options_of_their_own(whet: Whet, words: list[str], said: str) -> None:
    assert said in refused(whet("schedule", "kernel.py:product", *words))


def test_what_mlir_made_of_a_config_is_kept_for_the_explorer(whet: Whet) -> None:
    Path("kernel.py").write_text(THREE)
    ran = whet("tune", "kernel.py:vectorized", "--keep-ir", "--store", "kept.db")
    assert ran.code == 0, ran.err
    with open_store("kept.db") as store:
        [trial] = [
            trial for known in store.workloads() for trial in store.trials(known.workload.id)
        ]
    kept = kept_stages(Path("kept.db.ir"), trial.facts[FACT])
    assert [*kept] == ["insight", "script", "payload", "scheduled"]
    assert "vectors of" in kept["insight"]
    assert "linalg.matmul" in kept["payload"]
    assert "vector." in kept["scheduled"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--step", "99"], "there is no step 99"),
        (["--step", "1", "--diff", "1", "2"], "give --step or --diff, not both"),
        (["--set", "tl=8"], "no parameter 'tl'; did you mean 'tk'?"),
        (
            ["--set", "ti=3"],
            "not one of its values; valid: 8, 4, 12, 16",
        ),
    ],
)
def test_what_cannot_be_shown_is_said(whet: Whet, options: list[str], message: str) -> None:
    assert message in refused(show(whet, *options))


def test_another_kind_of_target_has_no_steps(whet: Whet) -> None:
    assert "kernel.py:plain is no whet.schedule(…)" in refused(whet("schedule", "kernel.py:plain"))


def test_a_sketch_is_printed_and_given_back(whet: Whet) -> None:
    Path("mine.mlir").write_text(whet("schedule", "softmax(16, 32)", "--sketch").out)
    listed = whet("schedule", "mine.mlir", "--payload", "softmax(16, 32)").out
    assert "transform.structured.fuse" in listed
