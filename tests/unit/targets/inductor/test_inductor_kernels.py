"""Kernels that Inductor writes, at their first launch, where there is a GPU only by name."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from torch._inductor.runtime.triton_heuristics import CoordescTuner

from whet.core.config import Config
from whet.core.errors import StoreError
from whet.targets.inductor import descent
from whet.targets.inductor import target as inductor_target
from whet.targets.inductor.kernel import Kernel, KernelTarget
from whet.targets.inductor.operation import LeftAlone
from whet.targets.inductor.target import on_current_stream, stored_pick

STAND_IN = Path(__file__).with_name("kernels_stand_in.py")

KERNEL = {"name": "triton_poi_fused_mul_0", "DESCENDS": True, "SEVERAL": True, "FACTOR": 2.0}

SCENARIOS = {
    "cold": {},
    "by another name": {"name": "triton_poi_fused_mul_7"},
    "one config": {"FACTOR": 3.0, "SEVERAL": False},
    "no descent": {"FACTOR": 4.0, "DESCENDS": False},
    "not tuned": {"FACTOR": 5.0, "WHET_MODE": "cached"},
    "off": {"FACTOR": 6.0, "WHET_MODE": "off"},
    "a broken store": {"FACTOR": 7.0, "WHET_STORE": "broken.db"},
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """All in one process, which takes seconds to import what it needs."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "broken.db").write_bytes(b"no store, and no database" * 100)
    common = {**KERNEL, "WHET_STORE": "one.db", "WHET_MODE": "tune"}
    told = [{**common, **one} for one in SCENARIOS.values()]
    told = [{**one, "WHET_STORE": str(folder / one["WHET_STORE"])} for one in told]
    environment = {name: at for name, at in os.environ.items() if not name.startswith("WHET_")}
    done = subprocess.run(
        [sys.executable, str(STAND_IN), json.dumps(told)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**environment, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"pick')]
    assert len(lines) == len(told), done.stderr[-3000:]
    return dict(zip(SCENARIOS, lines, strict=True))


@pytest.mark.slow
class TestFirstLaunch:
    def test_it_goes_down_to_the_fastest_with_whets_timer(self, seen):
        found = seen["cold"]
        assert found["pick"] == [512, 2]
        assert found["timed"] > 5
        assert found["by_inductor"] == 0

    def test_each_step_is_built_side_by_side(self, seen):
        assert seen["cold"]["sent"] >= 4

    def test_later_launches_measure_nothing(self, seen):
        assert all(one["again"] == 0 for one in seen.values())

    def test_a_counter_in_its_name_makes_it_no_other_kernel(self, seen):
        found = seen["by another name"]
        assert found["pick"] == [512, 2]
        assert (found["timed"], found["sent"]) == (0, 0)

    def test_the_first_step_is_built_before_the_launch(self, seen):
        found = seen["one config"]
        assert found["ahead"] >= 3
        assert found["pick"] == [512, 2]

    def test_without_descent_only_inductors_own_are_timed(self, seen):
        found = seen["no descent"]
        assert found["pick"] == [1024, 4]
        assert (found["sent"], found["by_inductor"]) == (0, 0)

    def test_a_mode_that_does_not_tune_takes_inductors_first(self, seen):
        found = seen["not tuned"]
        assert (found["timed"], found["sent"], found["by_inductor"]) == (0, 0, 0)
        assert found["pick"][0] == 1024

    def test_off_leaves_all_to_inductor(self, seen):
        found = seen["off"]
        assert (found["timed"], found["rows"]) == (0, [])
        assert found["by_inductor"] > 5

    def test_a_store_that_cannot_be_read_stops_no_model(self, seen):
        assert seen["a broken store"]["pick"] == [512, 2]

    def test_it_is_listed(self, seen):
        assert seen["cold"]["rows"] == [["inductor.pointwise", "taken", 1]]


def a_split(parts, block=1):
    """A reduction in so many parts, for each of which there is memory."""
    kwargs = {"XBLOCK": block, "RSPLIT_SIZE": parts, "NUM_STAGES": 1}
    return SimpleNamespace(kwargs=kwargs, num_warps=4, num_stages=1)


def an_autotuner(**changed):
    told = {
        "heuristic_type": SimpleNamespace(name="POINTWISE"),
        "inductor_meta": {},
        "device_props": SimpleNamespace(type="cuda", index=0),
        "deterministic_mode": False,
        "reset_to_zero_arg_names": [],
        "mutated_arg_names": ["in_out_ptr0"],
        "triton_meta": {"signature": {"in_out_ptr0": "*bf16", "in_out_ptr1": "*i64"}},
        "size_hints": {"x": 8192, "r0_": 1024},
        "coordesc_tuner": CoordescTuner(size_hints={"x": 8192}, is_mix_order_reduction=True),
        "launchers": [SimpleNamespace(config=a_split(8))],
        "compile_results": [],
    }
    return SimpleNamespace(**{**told, **changed})


class TestLeftAlone:
    @pytest.mark.parametrize(
        ("changed", "why"),
        [
            ({"heuristic_type": SimpleNamespace(name="TEMPLATE")}, "of the kind template"),
            ({"device_props": SimpleNamespace(type="xpu", index=0)}, "runs on xpu"),
            ({"deterministic_mode": True}, "must not depend"),
            ({"reset_to_zero_arg_names": ["out"]}, "counts from zero"),
            ({"mutated_arg_names": ["in_out_ptr0", "in_out_ptr1"]}, "it changes integers"),
            ({"inductor_meta": {"combo_tuning_groups": [{}]}}, "several kernels in one"),
        ],
    )
    def test_what_is_not_known_to_be_safe(self, changed, why):
        Kernel(an_autotuner(), {})
        with pytest.raises(LeftAlone, match=why):
            Kernel(an_autotuner(**changed), {})

    def test_what_there_is_memory_for_is_not_changed(self):
        kernel = Kernel(an_autotuner(inductor_meta={"coordinate_descent_tuning": True}), {})
        assert kernel.key == {"x": 8192, "r0": 1024, "RSPLIT_SIZE": 8}
        near = kernel.near(kernel.first())
        assert {one["XBLOCK"] for one in near} == {1, 2}
        assert all(kernel.offers(one) for one in near)
        assert not kernel.offers(Config({**kernel.first(), "RSPLIT_SIZE": 16}))
        assert not kernel.offers(Config({**kernel.first(), "XBLOCK": 16}))

    def test_a_torch_with_another_inside(self, monkeypatch):
        from torch._inductor.runtime import triton_heuristics

        assert descent.kernels_unknown() == ""
        monkeypatch.delattr(triton_heuristics.CoordescTuner, "value_too_small")
        assert descent.kernels_unknown() == "CoordescTuner.value_too_small is not there"


def test_a_store_that_is_lost_while_it_is_read_stops_no_compilation(monkeypatch):
    def lost(*_):
        raise StoreError("the disk is gone")

    monkeypatch.setattr(inductor_target, "exact_pick", lost)
    target = KernelTarget(Kernel(an_autotuner(), {}), [])
    monkeypatch.setattr(target, "workload", lambda: None)
    assert stored_pick(target) is None


def test_a_launch_follows_the_stream(monkeypatch):
    import torch

    streams = iter([7, 8])
    current = lambda _: SimpleNamespace(cuda_stream=next(streams))  # noqa: E731
    monkeypatch.setattr(torch.cuda, "current_stream", current)
    seen = []
    launch = on_current_stream(partial(lambda one, stream: seen.append((one, stream)), "out"), 0)
    launch()
    launch()
    assert seen == [("out", 7), ("out", 8)]
