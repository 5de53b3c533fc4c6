"""The report: a model's way from Python to machine code, with what each step cost and gained."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from whet.doctor.finding import NAMES
from whet.doctor.journey import html
from whet.doctor.journey.gather import CODE, GRAPHS, PASSES, ModeJourney

if TYPE_CHECKING:
    from whet.doctor.finding import Diagnosis
    from whet.doctor.modes.verdict import ModeTrial

_GRAPH_NAMES = {
    "dynamo_output_graph": "as Dynamo captured it",
    "aot_joint_graph": "forward and backward together",
    "aot_forward_graph": "the forward pass, in ATen's operations",
    "aot_backward_graph": "the backward pass, in ATen's operations",
    "aot_inference_graph": "in ATen's operations",
}

_CHOICES = 12

_SOURCE = re.compile(
    r"# (?:Topologically Sorted |Unsorted )?Source [Nn]odes: \[(?P<nodes>[^\]]*)\]"
    r"(?:, Original ATen: \[(?P<ops>[^\]]*)\])?"
)
_CALL = re.compile(r"^\s+(?:(?P<out>\w+) = )?(?P<name>[\w.]+)\((?P<args>.*)")
_LAUNCH = re.compile(r"^\s+(?P<name>\w+)\.run\(")
_NAMED = re.compile(r"fused_(.+?)_\d+$")  # where no comment says what is in it
_NO_KERNELS = ("empty_strided", "assert_", "reinterpret_tensor", "del ", "return", "with", "stream")


def page(done: Diagnosis, journeys: Sequence[ModeJourney], source: str) -> str:
    """`journeys` has at least one mode; the first is followed, the second shows what differs."""
    main = journeys[0]
    way = [
        html.section("python", "Python", "the model as it is written", html.code(source)),
        _capture(done, main),
        _passes(main),
        _fusion(done, main, journeys[1:]),
        tuning_section(done),
        _code(main),
        _machine(main),
        _graphs(done, journeys),
        _running(main),
    ]
    verdict = done.trial.verdict.text if done.trial is not None and done.trial.verdict else ""
    found = done.examination.findings
    count = f"{len(found)} finding{'' if len(found) == 1 else 's'}" if found else "no findings"
    body = [
        f"<h1>{escape(done.name)}: from Python to machine code</h1>"
        f'<p class="verdict">{escape(verdict or "No mode is recommended.")}'
        f'</p><p><a href="#findings">{count}</a>, <a href="#modes">modes</a></p>'
        f'<p class="soft">{escape(done.place)}, torch {escape(done.torch)}'
        f"{', ' + escape(done.device) if done.device else ''}; followed in {escape(main.mode)}</p>",
        *(html.paragraph(f"{one.mode}: {one.problem}") for one in journeys if one.problem),
        str(findings_section(done)),
        str(modes_section(done)),
        f'<nav aria-label="the way"><ol class="map">{html.stages(way)}</ol></nav>',
        *map(str, way),
    ]
    return html.whole(f"{done.name}: from Python to machine code", body)


def _seconds(one: ModeJourney, *names: str) -> str:
    took = sum(one.metrics.get(name, 0.0) for name in names)
    return f"{took:.2f} s" if took else "no time of its own"


def _capture(done: Diagnosis, one: ModeJourney) -> html.Section:
    looked = done.examination
    counted = (
        "" if looked.graphs is None else f"graphs: {looked.graphs}, operations: {looked.operations}"
    )
    spent = one.metrics.get("dynamo_cumulative_compile", 0.0)
    inner = one.metrics.get("aot_autograd_cumulative_compile", 0.0)
    cost = f"took {max(0.0, spent - inner):.2f} s of {spent:.2f} s; {counted}".rstrip("; ")
    bars = [
        (phase.name, phase.start_us, phase.took_us, phase.depth, "")
        for phase in one.trace.phases
        if phase.took_us > 1000
    ]
    ids = list(dict.fromkeys(text.id for kind in GRAPHS for text in one.trace.of(kind)))
    named = f"Compile ids, as in torch's logs: {', '.join(f'[{id}]' for id in ids)}."
    body = [
        *([html.paragraph(named)] if ids else []),
        html.paragraph("The phases of the whole compilation:"),
        html.timeline(bars),
    ]
    body += [
        html.folded(f"graph [{text.id}], {_GRAPH_NAMES[kind]}", html.code(text.text))
        for kind in GRAPHS
        for text in one.trace.of(kind)
    ]
    return html.section("capture", "Captured graphs", cost, *body)


def _passes(one: ModeJourney) -> html.Section:
    body = []
    for name in PASSES:
        before, after = one.trace.of(f"before_{name}_graph"), one.trace.of(f"after_{name}_graph")
        title = name.replace("_", "-")
        took = _seconds(one, f"{name}_pass", f"{name}_graph_pass")
        if not before or not after:
            body.append(html.paragraph(f"{title} passes: torch wrote no graphs"))
            continue
        for first, last in zip(before, after, strict=False):
            changed = html.difference(first.text, last.text)
            said = f"{title} passes, graph [{first.id}] ({took}): "
            if changed:
                body.append(html.folded(f"{said}what they changed", changed))
            else:
                body.append(html.paragraph(f"{said}changed nothing"))
    cost = f"took {_seconds(one, 'pre_grad_pass', 'joint_graph_pass', 'post_grad_pass')} in all"
    return html.section("passes", "Passes", cost, *body)


def _kernels(one: ModeJourney) -> list[FusedKernel]:
    return [kernel for text in one.trace.of(CODE) for kernel in fused_kernels(text.text)]


def _fusion(done: Diagnosis, one: ModeJourney, others: Sequence[ModeJourney]) -> html.Section:
    kernels = _kernels(one)
    operations = sum(len(kernel.operations) for kernel in kernels)
    written = [kernel for kernel in kernels if not kernel.library]
    cost = (
        f"{operations} of ATen's operations became {len(kernels)} kernels: {len(written)} "
        f"generated, {len(kernels) - len(written)} of a library"
    )
    rows = [
        (kernel.name, ", ".join(kernel.operations), ", ".join(kernel.nodes)) for kernel in kernels
    ]
    body = [html.table(("kernel", "operations fused into it", "nodes of the graph"), rows)]
    for other in others:
        here, there = ([kernel.name for kernel in _kernels(side)] for side in (one, other))
        changed = html.difference("\n".join(there), "\n".join(here))
        if changed:
            body.append(html.folded(f"kernels beside those of {other.mode}", changed))
        elif there:
            body.append(html.paragraph(f"{other.mode} has the same kernels."))
    return html.section("fusion", "Fusion", cost, *body)


def _code(one: ModeJourney) -> html.Section:
    texts = one.trace.of(CODE)
    cost = f"took {_seconds(one, 'inductor_code_gen_cumulative_compile')}"
    body = [html.folded(f"graph [{text.id}]", html.code(text.text)) for text in texts]
    return html.section("code", "Generated code", cost, *body)


def _machine(one: ModeJourney) -> html.Section:
    if not one.kernels:
        why = "no kernel was generated: all operations are calls of a library"
        return html.section("machine", "Machine code", why)
    body = [
        html.folded(
            kernel.name,
            "".join(
                html.folded(f"{stage}, {len(text.splitlines())} lines", html.code(text))
                for stage, text in kernel.stages.items()
            ),
        )
        for kernel in one.kernels
    ]
    cost = f"compiling the kernels took {_seconds(one, 'triton_compile')}"
    return html.section("machine", "Machine code", cost, *body)


def _graphs(done: Diagnosis, journeys: Sequence[ModeJourney]) -> html.Section:
    modes = {} if done.trial is None else {one.mode: one for one in done.trial.modes}
    rows = []
    for with_graphs, without in (
        ("reduce-overhead", "default"),
        ("max-autotune", "max-autotune-no-cudagraphs"),
    ):
        on, off = modes.get(with_graphs), modes.get(without)
        if on is None or off is None or not on.median_ns or not off.median_ns:
            continue
        used = on.cudagraph_skip or "used"
        rows.append(
            (
                f"{with_graphs} against {without}",
                used,
                f"{on.recording_s or 0:.3f} s",
                f"{off.median_ns / 1e6:.4g} → {on.median_ns / 1e6:.4g} ms",
            )
        )
    if not rows:
        return html.section("graphs", "CUDA graphs", "not timed: no two modes differ in them here")
    head = ("modes", "CUDA graphs", "recording", "a call")
    body = [html.table(head, rows)]
    if len(journeys) > 1:
        body.append(_graph_difference(journeys[0], journeys[1]))
    return html.section("graphs", "CUDA graphs", "", *body)


def _graph_difference(one: ModeJourney, other: ModeJourney) -> str:
    kind = "after_post_grad_graph"
    here, there = ("\n".join(t.text for t in side.trace.of(kind)) for side in (one, other))
    changed = html.difference(there, here)
    if not changed:
        return html.paragraph(f"The graphs of {one.mode} and {other.mode} are the same.")
    return html.folded(f"what {one.mode} has in its graph beside {other.mode}", changed)


def _running(one: ModeJourney) -> html.Section:
    if not one.events:
        return html.section("running", "Running", "the profiler gave no events")
    tracks = sorted({event.track for event in one.events})
    bars = []
    ends: dict[tuple[str, int], float] = {}
    offset = 0
    for track in tracks:
        deepest = 0
        for event in (event for event in one.events if event.track == track):
            row = 0
            while ends.get((track, row), 0.0) > event.start_us:
                row += 1
            ends[(track, row)] = event.start_us + event.took_us
            deepest = max(deepest, row)
            kind = "host" if track == "host" else ""
            bars.append((event.name, event.start_us, event.took_us, offset + row, kind))
        offset += deepest + 2
    said = "one settled step under the profiler, which slows the host down: " + ", then ".join(
        tracks
    )
    return html.section("running", "Running", said, html.timeline(bars))


def tuning_section(done: Diagnosis) -> html.Section:
    modes = () if done.trial is None else done.trial.modes
    body = []
    seen = set()
    for mode in modes:
        for table in mode.autotune:
            if (table.name, table.shapes) in seen:
                continue
            seen.add((table.name, table.shapes))
            again = {name: f"{ms:.4g} ms" for name, ms in table.careful_ms.items()}
            rows = [
                (name, f"{ms:.4g} ms", again.get(name, "")) for name, ms in table.choices[:_CHOICES]
            ]
            more = len(table.choices) - len(rows)
            title = f"{table.name} of {table.shapes}, in {mode.mode}"
            told = html.table(("choice", "autotuner", "timed again"), rows, (1, 2))
            left = html.paragraph(f"and {more} slower ones") if more > 0 else ""
            body.append(html.folded(title, told + left))
    if not body:
        why = next(
            (one for one in done.examination.conditions if "does not tune" in one),
            "no mode tuned an operation here" if modes else "not timed",
        )
        return html.section("tuning", "Autotuning", why)
    return html.section("tuning", "Autotuning", "torch's own times of each choice", *body)


def modes_section(done: Diagnosis) -> html.Section:
    if done.trial is None:
        return html.section("modes", "Modes", "not timed")
    head = (
        "mode",
        "a call",
        "× eager",
        "first call",
        "warm",
        "recording",
        "device",
        "launches",
        "error",
    )
    rows = [_row(one) for one in done.trial.modes]
    notes = [html.paragraph(f"{note}.") for note in done.examination.notes]
    text = done.trial.verdict.text if done.trial.verdict is not None else "no verdict"
    return html.section("modes", "Modes", text, html.table(head, rows, range(1, 9)), *notes)


def _row(one: ModeTrial) -> tuple[str, ...]:
    step, warm = one.step, one.warm

    def shown(value: float | None, unit: str, scale: float = 1.0) -> str:
        return "" if value is None else f"{value / scale:.4g}{unit}"

    return (
        one.mode,
        shown(one.median_ns, " ms", 1e6) or one.status,
        "" if one.beside_eager is None else f"{one.beside_eager[1]:.2f}",
        shown(one.first_call_s, " s"),
        shown(None if warm is None else warm.first_call_s, " s"),
        shown(one.recording_s, " s"),
        shown(None if step is None else step.device_ns, " ms", 1e6),
        shown(None if step is None else step.launches, ""),
        shown(one.error, ""),
    )


def findings_section(done: Diagnosis) -> html.Section:
    found = done.examination.findings
    if not found:
        return html.section("findings", "Findings", "none")
    body = []
    for one in found:
        where = f" {one.place}" if one.place.file else ""
        body.append(f"<h3>{one.name}: {NAMES.get(one.name, '')}</h3>")
        body.append(html.paragraph(f"{one.evidence}{where}"))
        body += [html.code(text) for text in (one.place.code, one.repro) if text]
        body += [
            html.paragraph(f"→ {remedy.text} ({remedy.tried or 'not tried'})")
            for remedy in one.remedies
        ]
    left = [html.paragraph(line) for line in done.examination.left_out]
    return html.section("findings", "Findings", "", *body, *left)


@dataclass(frozen=True)
class FusedKernel:
    """`library` is whether it is a call of the vendor's library, not a generated kernel."""

    name: str
    nodes: tuple[str, ...]
    operations: tuple[str, ...]
    library: bool


def fused_kernels(code: str) -> list[FusedKernel]:
    """In the order of their calls. Only calls below a comment that names their nodes: a generated
    kernel's own definition has one as well, and is no call."""
    found: list[FusedKernel] = []
    pending: re.Match[str] | None = None
    inside = False
    for line in code.splitlines():
        inside = inside or line.lstrip().startswith("def call(")
        source = _SOURCE.search(line)
        if source is not None:
            pending = source if inside else None
            continue
        name = _called(line) if inside else ""
        if name and (pending is not None or name.startswith(("triton_", "cpp_fused"))):
            found.append(_kernel(name, pending))
            pending = None
    return found


def _called(line: str) -> str:
    launch = _LAUNCH.match(line)
    if launch is not None:
        return launch["name"]
    call = _CALL.match(line)
    if call is None or call["name"].startswith(_NO_KERNELS):
        return ""
    name = call["name"]
    generated = name.startswith(("cpp_", "triton_"))
    library = name.startswith(("extern_kernels.", "torch.ops.", "aten."))
    return name if generated or library else ""


def _kernel(name: str, source: re.Match[str] | None) -> FusedKernel:
    def words(group: str) -> tuple[str, ...]:
        text = "" if source is None else source[group] or ""
        return tuple(word.strip() for word in text.split(",") if word.strip())

    library = not name.startswith(("cpp_", "triton_"))
    named = _NAMED.search(name)
    operations = words("ops") or tuple(named[1].split("_") if named else ())
    return FusedKernel(name, words("nodes"), operations, library)
