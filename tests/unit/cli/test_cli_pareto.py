"""`whet pareto`: which workload, in which unit, and what it says, prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cli_runs import Whet, refused
from whet.cli.commands.lab_pareto import evaluate
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.status import Status
from whet.core.workload import Device
from whet.replay import Build, Table, TableOutcome, TableWorkload, write_table

FILE = "gemm.whet.json.gz"
QUICK = ("--draws", "20", "--runs", "4", "--search", "none", "--jobs", "1")


@pytest.fixture(autouse=True)
def _a_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    keys = [{"M": 64, "N": 64, "K": 64}, {"M": 4096, "N": 256, "K": 4096}]
    times = rng.uniform(20_000, 200_000, (2, 30))
    table = Table(
        kernel="matmul_kernel",
        fingerprint="",
        device=Device("Test GPU", "", ""),
        configs=tuple(Config(B=at) for at in range(30)),
        builds=tuple(Build(Status.OK, float(s)) for s in rng.uniform(0.2, 2, 30)),
        workloads=tuple(
            TableWorkload.of(
                key,
                [TableOutcome(Status.OK, (tuple(ns * rng.normal(1, 0.01, 6)),)) for ns in row],
            )
            for key, row in zip(keys, times, strict=True)
        ),
    )
    write_table(table, tmp_path / FILE)


@pytest.mark.medium
def test_it_prints_a_frontier_and_a_verdict_for_each_change(whet: Whet, tmp_path: Path) -> None:
    ran = whet("lab", "pareto", FILE, *QUICK)
    assert ran.code == 0
    assert ran.widest <= 80
    assert "M=4096 N=256" in ran.out.splitlines()[0].replace("K=4096 ", "")
    assert "TFLOPS" in ran.out
    verdicts = " ".join(ran.out.split())
    for change in ("parallel compilation", "early stopping", "racing"):
        assert f"{change} " in verdicts
    assert "moves the frontier" in verdicts
    assert "assuming 0.1 s" in verdicts
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.medium
def test_it_writes_a_figure_and_a_page(whet: Whet, tmp_path: Path) -> None:
    ran = whet("lab", "pareto", FILE, *QUICK, "--out", "f")
    assert "wrote f.svg, f.html" in ran.err
    page = (tmp_path / "f.html").read_text()
    assert "<title>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.medium
def test_json_has_every_frontier(whet: Whet, tmp_path: Path) -> None:
    ran = whet("lab", "pareto", FILE, *QUICK, "--json")
    assert ran == whet("lab", "pareto", FILE, *QUICK, "--json")  # the same seed, the same answer
    data = json.loads(ran.out)
    assert [one["name"] for one in data["frontiers"]][:2] == [
        "sequential",
        "parallel compilation (16×)",
    ]
    points = data["frontiers"][0]["points"]
    assert [p["seconds"] for p in points] == sorted(p["seconds"] for p in points)
    assert points[0]["tflops"] == pytest.approx(
        points[0]["fraction"] * data["optimum_tflops"], rel=1e-3
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE]


@pytest.mark.medium
def test_a_workload_is_chosen_by_its_key(whet: Whet) -> None:
    ran = whet("lab", "pareto", FILE, *QUICK, "--workload", "M=64", "--json")
    assert "M=64" in json.loads(ran.out)["about"]


@pytest.mark.medium
def test_all_workloads_are_mixed_and_have_no_tflops(whet: Whet) -> None:
    data = json.loads(whet("lab", "pareto", FILE, *QUICK, "--all-workloads", "--json").out)
    assert "2 workloads" in data["about"]
    assert data["optimum_tflops"] is None


@pytest.mark.medium
def test_strategies_are_added_to_the_frontiers(whet: Whet) -> None:
    quick = ("--draws", "4", "--runs", "4", "--jobs", "1", "--workload", "M=64")
    data = json.loads(whet("lab", "pareto", FILE, *quick, "--search", "grid", "--json").out)
    assert "grid" in [one["name"] for one in data["frontiers"]]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workload", "M=1"), "--workload 'M=1' is not in gemm.whet.json.gz; valid: "),
        (("--flops", "2*Q"), "--flops '2*Q' is not valid"),
        (("--search", "gird"), "did you mean 'grid'?"),
        (("--workload", "M=64", "--all-workloads"), "not both"),
        (("--out", "no/where"), "cannot write"),
    ],
)
def test_a_wrong_option_is_one_clear_line(
    whet: Whet, arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused(whet("lab", "pareto", FILE, *QUICK, *arguments, "--json"))


@pytest.mark.parametrize(
    ("expression", "value"), [("2*M*N", 24.0), ("M + N/2", 5.0), ("(M-1)*N", 8.0)]
)
def test_operations_are_sums_and_products_of_the_key(expression: str, value: float) -> None:
    assert evaluate(expression, {"M": 3, "N": 4, "dtype": "f16"}) == value


@pytest.mark.parametrize("expression", ["__import__('os')", "M**M", "dtype", "", "0*M", "1/0"])
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(UsageError):
        evaluate(expression, {"M": 3, "dtype": "f16"})
