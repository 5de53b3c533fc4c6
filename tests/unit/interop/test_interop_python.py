"""`whet export python`: what the written file says, and that it runs alone and says the same."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interop_samples import H200, a_key, tuned

from whet._version import __version__
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.workload import Device
from whet.interop import READERS, ReadOptions, keep, select
from whet.interop.decision import Decision, Known, Split, decide
from whet.interop.files import FormatError
from whet.interop.python_source import python_source
from whet.interop.selecting import MeasuredWorkload
from whet.replay import read_table
from whet.store import MemoryStore, Store
from whet.testing.samples import a_timing, a_trial, a_workload

GOLDEN = '''\
# Which config of matmul to launch, by the problem's size.
#
#   written by: whet 0.1.0; regenerate it instead of editing
#   device:     NVIDIA H200 sm_90
#   built with: triton 3.6.0
#   measured:   2023-11-14
#   keys:       2; M 64 to 4096, N 64 to 4096
#   for:        a.dtype=torch.float16
#   configs:    2 of 2 that were measured
#   score:      100.00% of the best known, geometric mean over the keys; worst 100.0%; \
at most 100.00% is possible with these configs

import math

KERNEL = "matmul"
DEVICES = ("NVIDIA H200",)
SIZES = ("M", "N")
PARTS = ()
FIXED = {"a.dtype": "torch.float16"}
KINDS = ((),)

CONFIGS = (
    {"BM": 16, "num_warps": 4},
    {"BM": 128, "num_warps": 8},
)


def _nearest(table, sizes):
    """The table's entry for these sizes, or for the nearest ones in doublings."""
    if sizes in table:
        return table[sizes]

    def distance(known):
        return sum(
            abs(math.log2(max(a, 1)) - math.log2(max(b, 1))) for a, b in zip(known, sizes)
        )

    return table[min(table, key=distance)]


_TABLE_0 = {
    (64, 64): 0,
    (4096, 4096): 1,
}


def _rule_0(M, N):
    return _nearest(_TABLE_0, (M, N))


def pick(M, N) -> dict:
    """The config to launch with, also for sizes that were not measured."""
    return {**CONFIGS[_rule_0(M, N)]}
'''

SMALL, LARGE = {"BM": 16, "num_warps": 4}, {"BM": 128, "num_warps": 8}


def measured(store: Store, devices: Sequence[str] = ()) -> list[MeasuredWorkload]:
    picks = select(store.workloads(), devices=devices).picks
    return [MeasuredWorkload(workload, best, store.trials(workload.id)) for workload, best in picks]


def matmul_store(*sizes: int, **key: Any) -> MemoryStore:
    """Small tiles win small problems."""
    store = MemoryStore()
    for m in sizes:
        times = [(SMALL, 100.0 + m), (LARGE, 1000.0 + m / 2)]
        tuned(store, a_key({"M": m, "N": m, "a.dtype": "torch.float16", **key}, "matmul"), times)
    return store


def run_alone(source: str, calls: Sequence[str], folder: Path) -> list[Any]:
    """What the calls return in a Python that has neither whet nor any other package."""
    path = folder / "decision.py"
    path.write_text(source)
    asked = f"[{', '.join(calls)}]"
    program = (
        f"import json, sys; sys.path.insert(0, {str(folder)!r}); "
        f"from decision import *; print(json.dumps({asked}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    answers: list[Any] = json.loads(done.stdout)
    return answers


def h200() -> tuple[list[Known], MemoryStore]:
    """A recorded GEMM of 64 sizes, every tenth config of it."""
    table = read_table("h200-gemm-576")
    store, known = MemoryStore(), []
    for workload in table.workloads:
        times = [
            (config, float(ns))
            for config, ns in zip(table.configs, workload.medians, strict=True)
            if not math.isnan(ns)
        ][::10]
        key = {name: workload.key[name] for name in ("M", "N", "K")}
        tuned(store, a_key(key, "matmul_kernel"), times)
        known.append(Known(tuple(key.values()), (), dict(times)))
    return known, store


def test_a_file_for_a_few_keys_is_a_table() -> None:
    source, _ = python_source(measured(matmul_store(4096, 64)))
    assert source == GOLDEN.replace("whet 0.1.0", f"whet {__version__}")


def test_the_file_runs_alone_and_gives_the_nearest_for_sizes_it_does_not_know(
    tmp_path: Path,
) -> None:
    source, _ = python_source(measured(matmul_store(64, 4096)))
    calls = ["pick(64, 64)", "pick(4096, 4096)", "pick(100, 10)", "pick(N=9000, M=1000)"]
    assert run_alone(source, calls, tmp_path) == [SMALL, LARGE, SMALL, LARGE]


def test_what_a_caller_does_to_the_dict_stays_with_the_caller(tmp_path: Path) -> None:
    source, _ = python_source(measured(matmul_store(64, 4096)))
    calls = ["pick(64, 64).clear()", "pick(64, 64)"]
    assert run_alone(source, calls, tmp_path) == [None, SMALL]


@pytest.mark.medium
def test_a_tree_over_64_sizes_runs_alone_and_reproduces_the_picks(tmp_path: Path) -> None:
    known, store = h200()
    source, decision = python_source(measured(store))
    assert "_nearest" not in source
    sizes = [one.sizes for one in known] + [(1, 1, 1), (333, 7000, 50), (10**6, 10**6, 10**6)]
    answers = run_alone(source, [f"pick{size}" for size in sizes], tmp_path)
    assert [Config(answer) for answer in answers] == [decision.pick(size) for size in sizes]
    assert len({json.dumps(answer) for answer in answers}) > 3


@pytest.mark.medium
def test_eight_configs_and_a_tree_lose_little_of_the_best_over_64_sizes() -> None:
    known, _ = h200()
    decision = decide(known, max_configs=8, max_leaves=32)
    assert len(decision.configs) <= 8
    assert decision.score is not None
    assert decision.limit is not None
    assert 0.97 < decision.score <= decision.limit <= 1


def test_the_score_is_the_geometric_mean_over_the_known_keys() -> None:
    a, b = Config(B=1), Config(B=2)
    known = [Known((1,), (), {a: 1.0, b: 2.0}), Known((2,), (), {a: 3.0, b: 1.0})]
    decision = decide(known, max_configs=1, max_leaves=1, style="tree")
    assert decision.configs == (a,) or decision.configs == (b,)
    lost = 3.0 if decision.configs == (a,) else 2.0
    assert decision.score == pytest.approx((1 / lost) ** 0.5)
    assert decision.worst == pytest.approx(1 / lost)


def test_a_tree_splits_halfway_in_doublings() -> None:
    a, b = Config(B=1), Config(B=2)
    known = [Known((m,), (), {a: float(m), b: 500.0}) for m in (64, 256, 1024, 4096)]
    [rule] = decide(known, max_configs=2, max_leaves=8, style="tree").rules
    assert isinstance(rule.tree, Split)
    assert (rule.tree.feature, rule.tree.at) == (0, 512)


@pytest.mark.medium
def test_a_tree_has_no_more_leaves_than_it_may() -> None:
    known, _ = h200()

    def leaves(decision: Decision) -> int:
        def count(node: Any) -> int:
            return count(node.low) + count(node.high) if isinstance(node, Split) else 1

        return count(decision.rules[0].tree)

    assert leaves(decide(known, max_configs=8, max_leaves=4)) <= 4
    assert leaves(decide(known, max_configs=8, max_leaves=32)) > 4


def test_the_text_does_not_depend_on_the_order_of_tuning() -> None:
    first, _ = python_source(measured(matmul_store(64, 256, 1024)))
    second, _ = python_source(measured(matmul_store(1024, 64, 256)))
    assert first == second


def test_dtypes_that_differ_are_an_argument_and_unknown_ones_get_the_default(
    tmp_path: Path,
) -> None:
    store = matmul_store(64, 4096)
    tuned(
        store,
        a_key({"M": 64, "N": 64, "a.dtype": "torch.float32"}, "matmul"),
        [(SMALL, 20.0), (LARGE, 10.0)],
    )
    source, _ = python_source(measured(store))
    assert 'def pick(M, N, a_dtype="torch.float16") -> dict:' in source
    assert "rule for KINDS[0]" in source
    calls = ["pick(64, 64)", "pick(64, 64, 'torch.float32')", "pick(64, 64, a_dtype='bf16')"]
    assert run_alone(source, calls, tmp_path) == [SMALL, LARGE, SMALL]


def test_devices_are_an_argument_where_several_were_asked_for(tmp_path: Path) -> None:
    store = matmul_store(64, 4096)
    other = Device("NVIDIA A100", "nvidia", "sm_80")
    key = {"M": 64, "N": 64, "a.dtype": "torch.float16"}
    tuned(store, a_key(key, "matmul", other), [(SMALL, 20.0), (LARGE, 10.0)])
    source, _ = python_source(measured(store, ["NVIDIA H200", "NVIDIA A100"]))
    calls = ["pick(64, 64)", "pick(64, 64, 'NVIDIA A100')", "pick(64, 64, device='TPU')"]
    assert run_alone(source, calls, tmp_path) == [SMALL, LARGE, SMALL]


def test_hostile_names_stay_in_comments_and_literals(tmp_path: Path) -> None:
    evil = '"""\nimport os; os.abort()\n#'
    store = MemoryStore()
    key = {"M": 1, "class": 2, "_rule_0": 3, "a b": 4, "x": evil}
    device = replace(H200, name=evil)
    tuned(store, a_key(key, evil, device, {evil: evil}), [({evil: evil}, 10.0)])
    source, _ = python_source(measured(store))
    assert run_alone(source, ["pick(1, 2, 3, 4)"], tmp_path) == [{evil: evil}]


@pytest.mark.medium
@settings(max_examples=30)
@given(st.dictionaries(st.text(min_size=1), st.integers(1, 99), min_size=1, max_size=5), st.text())
def test_whatever_the_names_the_file_is_python(key: dict[str, int], text: str) -> None:
    store = MemoryStore()
    tuned(store, a_key({"M": 1}, "k"), [({"B": text}, 10.0)])
    [one] = measured(store)
    workload = replace(one.workload, key=type(one.workload.key)(key))
    source, decision = python_source([replace(one, workload=workload)])
    names: dict[str, Any] = {}
    exec(compile(ast.parse(source), "decision", "exec"), names)
    assert names["pick"](*key.values()) == dict(decision.configs[0])


def test_keys_of_different_names_are_refused() -> None:
    store = matmul_store(64)
    tuned(store, a_key({"M": 64, "B": 1}, "matmul"), [(SMALL, 10.0)])
    with pytest.raises(UsageError, match="have different names"):
        python_source(measured(store))


def test_timings_that_cannot_be_compared_with_the_best_are_left_out() -> None:
    store = matmul_store(64)
    [one] = measured(store)
    odd = [
        trial.superseded_by(timing=replace(trial.timing, timer="other"))
        for trial in one.trials
        if trial.timing is not None and trial.config != one.best.config
    ]
    _, decision = python_source([replace(one, trials=[one.best, *odd])])
    assert decision.configs == (one.best.config,)


def test_a_table_is_read_back_as_choices_and_nothing_is_run(tmp_path: Path) -> None:
    path = tmp_path / "decision.py"
    text, _ = python_source(measured(matmul_store(64, 4096)))
    path.write_text(text + "\nraise SystemExit('it was run')\n")
    store = MemoryStore()
    keep(store, READERS["python"](path, ReadOptions()).findings)
    again, _ = python_source(measured(store))
    table = text[text.index("KERNEL") :]
    assert again[again.index("KERNEL") :] == table


@pytest.mark.parametrize(
    "text",
    ["", "x = 1", "CONFIGS = (", GOLDEN[:900], "CONFIGS = (1,)\nKINDS = ((),)", "\0", "(" * 9999],
)
def test_what_is_no_such_file_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "decision.py"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"decision\.py") as refused:
        READERS["python"](path, ReadOptions())
    assert "\n" not in str(refused.value)


def test_a_tree_cannot_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "decision.py"
    path.write_text(python_source(measured(matmul_store(64, 4096)), style="tree")[0])
    with pytest.raises(FormatError, match="contains a decision tree, which has no keys"):
        READERS["python"](path, ReadOptions())


def test_what_a_busy_machine_disturbed_counts_as_measured_and_what_a_host_timed_does_not() -> None:
    workload = a_workload()
    best = a_trial(workload, {"BM": 16}, timing=a_timing(1000.0))
    disturbed = a_trial(workload, {"BM": 32}, timing=a_timing(3000.0, quality="contaminated"))
    hosted = a_trial(workload, {"BM": 64}, timing=a_timing(900.0, quality="host_bound"))
    trials = (best, disturbed, hosted)
    assert {*MeasuredWorkload(workload, best, trials).times()} == {best.config, disturbed.config}
    assert {*MeasuredWorkload(workload, disturbed, trials).times()} == {
        best.config,
        disturbed.config,
    }
