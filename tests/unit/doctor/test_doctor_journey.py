"""The report: from what torch writes down to one page."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from whet.doctor.finding import Diagnosis, Examination, Finding, Line, Remedy
from whet.doctor.journey.gather import ModeJourney, RanEvent, StagedKernel, followed, read_trace
from whet.doctor.journey.html import difference
from whet.doctor.journey.page import fused_kernels, page
from whet.doctor.modes.compiler import TunedOp
from whet.doctor.modes.verdict import ModeTrial, ModeVerdict, TrialOfModes

HEAD = "V1116 16:37:44.100000 4479 torch/_dynamo/x.py:10]"
AGAIN = '"frame_id": 1, "frame_compile_id": 2, "attempt": 1'
TRACE = f"""\
{HEAD} {{"dynamo_output_graph": {{}}, "frame_id": 0, "has_payload": "a"}}
\tclass GraphModule:
\t    x = linear(x)
{HEAD} {{"artifact": {{"name": "before_joint_graph"}}, "frame_id": 1, "has_payload": "b"}}
\tone
\ttwo
{HEAD} {{"artifact": {{"name": "after_joint_graph"}}, {AGAIN}}}
\tone
{HEAD} {{"artifact": {{"name": "inductor_post_grad_graph"}}, "frame_id": 0, "has_payload": "b"}}
\tlast
{HEAD} {{"artifact": {{"name": "torch_version"}}, "has_payload": "b"}}
\t2.13
{HEAD} {{"chromium_event": {{}}, "has_payload": "c"}}
\t{{"name": "outer", "ts": 1000, "ph": "B"}}
{HEAD} {{"chromium_event": {{}}, "has_payload": "c"}}
\t{{"name": "inner", "ts": 1200, "ph": "B"}}
{HEAD} {{"chromium_event": {{}}, "has_payload": "c"}}
\t{{"name": "inner", "ts": 1500, "ph": "E"}}
{HEAD} {{"chromium_event": {{}}, "has_payload": "c"}}
\t{{"name": "outer", "ts": 3000, "ph": "E"}}
{HEAD} {{"broken
"""

CODE = """\
# Topologically Sorted Source Nodes: [relu], Original ATen: [aten.relu]
cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r'''
''')

class Runner:
    def call(self, args):
        buf0 = empty_strided_cpu((16, 64), (64, 1), torch.float32)
        # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.t, aten.addmm]
        extern_kernels.addmm(arg1_1, arg2_1, out=buf0)
        cpp_fused_relu_0(buf1)
        # Topologically Sorted Source Nodes: [a, b], Original ATen: [aten.add, aten.mul]
        stream0 = get_raw_stream(0)
        triton_poi_fused_add_mul_1.run(buf1, 64, stream=stream0)
        return (buf1, )
"""


def test_a_trace_is_read_with_its_graphs_and_phases(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(TRACE)
    trace = read_trace(tmp_path)
    assert [(one.kind, one.id) for one in trace.texts] == [
        ("dynamo_output_graph", "0/0"),
        ("before_joint_graph", "1/0"),
        ("after_joint_graph", "1/2_1"),
        ("after_post_grad_graph", "0/0"),
    ]
    assert trace.texts[0].text == "class GraphModule:\n    x = linear(x)"
    assert [(one.name, one.start_us, one.took_us, one.depth) for one in trace.phases] == [
        ("inner", 200, 300, 1),
        ("outer", 0, 2000, 0),
    ]
    assert read_trace(tmp_path / "nothing").texts == ()


def test_a_kernel_has_the_operations_that_were_fused_into_it() -> None:
    linear, relu, pointwise = fused_kernels(CODE)
    assert (linear.name, linear.library) == ("extern_kernels.addmm", True)
    assert linear.operations == ("aten.t", "aten.addmm")
    assert (relu.name, relu.operations, relu.library) == ("cpp_fused_relu_0", ("relu",), False)
    assert (pointwise.name, pointwise.nodes) == ("triton_poi_fused_add_mul_1", ("a", "b"))


def test_a_difference_shows_what_was_added_and_removed() -> None:
    assert difference("same", "same") == ""
    shown = difference("one\n<two>", "one\nthree")
    assert "<del>-&lt;two&gt;</del>" in shown
    assert "<ins>+three</ins>" in shown


def diagnosis(mode: str = "max-autotune") -> Diagnosis:
    table = TunedOp("addmm", "8x8", (("addmm", 0.5), ("triton_mm", 0.7)), {"addmm": 0.51})
    modes = (
        ModeTrial("eager", "ok", 2e6),
        ModeTrial("max-autotune", "ok", 1e6, recording_s=0.2, autotune=(table,)),
        ModeTrial("max-autotune-no-cudagraphs", "ok", 1.5e6),
    )
    finding = Finding("graph-break", "because <b>", Line("m.py", 3, "x.item()"), (Remedy("do"),))
    trial = TrialOfModes(modes, ModeVerdict(mode, (), 2.0, 10, True, "Use it."))
    return Diagnosis("model", "m.py:1", "2.13", Examination((finding,)), trial, device="a GPU")


def test_the_page_follows_the_model_through_every_step(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        TRACE
        + f'{HEAD} {{"inductor_output_code": {{}}, "frame_id": 0}}\n\t'
        + CODE.replace("\n", "\n\t")
    )
    one = ModeJourney(
        "max-autotune",
        read_trace(tmp_path),
        (StagedKernel("triton_poi", {"ttir": "module", "ptx": ".version 8"}),),
        (RanEvent("addmm", "device", 0, 10), RanEvent("launch", "host", 0, 20)),
        {"joint_graph_pass": 1.5},
    )
    other = ModeJourney("max-autotune-no-cudagraphs", read_trace(tmp_path))
    text = page(diagnosis(), [one, other], "class Model: ...")
    assert set(re.findall(r'href="#(\w+)"', text)) == set(re.findall(r'section id="(\w+)"', text))
    assert "graph [1/0] (1.50 s)" in text
    assert "Compile ids, as in torch's logs: [0/0]." in unescape(text)
    order = [text.index(f'id="{name}"') for name in ("findings", "modes", "python", "machine")]
    assert text.index("Use it.") < order[0]
    assert order == sorted(order)
    assert '<a href="#machine"><b>Machine code</b><span>compiling the kernels took' in text
    assert "style=" not in text
    assert "3 kernels: 2 generated, 1 " in text
    assert "ptx, 1 lines" in text
    assert "0.51 ms" in text
    assert "1.5 → 1 ms" in text
    assert "max-autotune-no-cudagraphs has the same" in text
    assert "because &lt;b&gt;" in text
    assert "src=" not in text
    assert "http" not in text


def test_a_step_without_artefacts_says_why() -> None:
    done = Diagnosis("m", "", "2", Examination(()))
    text = page(done, [ModeJourney("default", problem="ImportError: no")], "")
    assert "default: ImportError: no" in text
    assert "no graphs" in text
    assert "no kernel" in text


def test_the_recommended_mode_is_followed() -> None:
    assert followed(diagnosis("default"), gpu=True) == ("default", "max-autotune")
    assert followed(diagnosis("eager"), gpu=False) == ("default",)


MODEL = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 1).relu().sum(1)

def make_model():
    return Model(), torch.ones(16, 64)
"""


@pytest.mark.medium
def test_ctrl_c_in_the_report_keeps_the_findings(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")
    from whet.doctor.checkup import doctor_file

    def interrupted(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("whet.doctor.journey.gather.journey", interrupted)
    file, report = tmp_path / "model.py", tmp_path / "report.html"
    file.write_text(MODEL)
    done = doctor_file(file, "make_model", modes=[], report=report)
    assert done.interrupted
    assert done.examination.graphs == 1
    [line] = done.examination.left_out
    assert "(interrupted)" in line
    assert not report.exists()


def test_the_stages_of_a_kernel_are_found_wherever_they_are_cached(tmp_path: Path) -> None:
    from whet.doctor.journey.gather import _triton_kernels

    cached = tmp_path / "inductor" / "triton" / "0" / "ABC"
    cached.mkdir(parents=True)
    for stage in ("ttir", "ttgir", "ptx"):
        (cached / f"triton_poi_fused_add_0.{stage}").write_text(f"the {stage}")
    [kernel] = _triton_kernels(tmp_path)
    assert kernel.name == "triton_poi_fused_add_0"
    assert kernel.stages == {"ttir": "the ttir", "ttgir": "the ttgir", "ptx": "the ptx"}
