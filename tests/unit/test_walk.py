"""The way of one config that docs/architecture.md describes is the way that a call takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from call_trace import Trace, triton_call

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"

# From the call to the store: without one of these the page would leave a gap.
ESSENTIAL = {
    "targets/triton/autotuner.py",
    "targets/triton/tuning.py",
    "engine/tuning.py",
    "engine/steps/run.py",
    "engine/steps/explore.py",
    "engine/steps/build.py",
    "engine/steps/samples.py",
    "builds/builder.py",
    "measure/bench/executor.py",
    "measure/racing/race.py",
    "engine/steps/finals.py",
    "measure/racing/duel.py",
    "engine/steps/record.py",
}


def named() -> set[str]:
    section = PAGE.read_text().partition("## One config, from")[2].partition("\n## ")[0]
    return set(re.findall(r"`([a-z_/]+\.py)`", section))


@pytest.fixture(scope="module")
def first_call(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("walk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHET_STORE", str(folder / "store.db"))
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        patch.delenv("TRITON_INTERPRET", raising=False)
        first, second = triton_call()
    assert len(second.files) <= 3
    return first


@pytest.mark.slow
def test_every_file_that_the_page_names_is_entered(first_call: Trace) -> None:
    assert named()
    assert named() <= first_call.files.keys()


@pytest.mark.medium
def test_the_page_leaves_no_essential_file_out(first_call: Trace) -> None:
    assert named() >= ESSENTIAL
    assert first_call.files.keys() >= ESSENTIAL
