"""What whet answers torch's compiler, where there is a GPU only by name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

STAND_IN = Path(__file__).with_name("inductor_stand_in.py")

SCENARIOS = {
    "cold": {"fastest": "5", "WHET_STORE": "one.db"},
    "another process": {"fastest": "extern", "WHET_STORE": "one.db"},
    "a library's": {"fastest": "extern", "WHET_STORE": "two.db"},
    "not tuned": {"fastest": "5", "WHET_STORE": "three.db", "WHET_MODE": "cached"},
    "off": {"fastest": "5", "WHET_STORE": "one.db", "WHET_MODE": "off"},
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """All in one process, which takes seconds to import what it needs."""
    folder = tmp_path_factory.mktemp("inductor")
    told = [
        {
            **one,
            "WHET_STORE": str(folder / one["WHET_STORE"]),
            "WHET_MODE": one.get("WHET_MODE", "tune"),
        }
        for one in SCENARIOS.values()
    ]
    done = subprocess.run(
        [sys.executable, str(STAND_IN), json.dumps(told)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**_environment(), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"choices')]
    assert len(lines) == len(told), done.stderr[-3000:]
    return dict(zip(SCENARIOS, lines, strict=True)), done.stderr


def _environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("WHET_")}


@pytest.mark.slow
class TestLowering:
    def test_the_fastest_template_is_picked_among_all(self, seen):
        cold = seen[0]["cold"]
        assert cold["pick"] == "triton_mm_"
        assert "BLOCK_M=64" in cold["numbers"]
        assert "BLOCK_K=128" in cold["numbers"]
        assert cold["timed"] > 20

    def test_it_is_timed_once_more_by_inductor_since_fused_kernels_will_be(self, seen):
        assert seen[0]["cold"]["stock"][0] == ["template"]
        assert seen[0]["cold"]["finite"] == 1

    def test_a_wrong_choice_is_named(self, seen):
        assert "inductor.mm: triton_mm is wrong: it was told to be wrong" in seen[1]

    def test_another_process_measures_and_prepares_nothing(self, seen):
        warm = seen[0]["another process"]
        assert warm["numbers"] == seen[0]["cold"]["numbers"]
        assert warm["timed"] == 0
        assert (seen[0]["cold"]["prepared"][0], warm["prepared"][0]) == (True, False)

    def test_a_library_kernel_stands_beside_the_best_template(self, seen):
        found = seen[0]["a library's"]
        assert found["pick"] == "mm"
        assert found["stock"][0] == ["mm", "template"]

    @pytest.mark.parametrize("name", SCENARIOS)
    def test_other_backends_are_other_choices_and_change_nothing_for_later(self, seen, name):
        found = seen[0][name]
        assert found["without a library"] == "triton_mm_"
        assert found["again"] == found["pick"]
        assert found["stock"][-1] == found["stock"][0]

    def test_a_mode_that_does_not_tune_takes_the_library(self, seen):
        found = seen[0]["not tuned"]
        assert (found["pick"], found["timed"]) == ("mm", 0)

    def test_off_leaves_all_to_inductor(self, seen):
        found = seen[0]["off"]
        assert found["timed"] == 0
        assert len(found["stock"][0]) > 20
        assert found["rows"] == []

    def test_it_is_listed(self, seen):
        assert seen[0]["cold"]["rows"] == [["inductor.mm", "taken", 1]]
