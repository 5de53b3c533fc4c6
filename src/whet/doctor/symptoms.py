"""What the timed modes show, in words: slowness, results that differ, modes that fail."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from whet.core.status import Status
from whet.doctor.finding import Finding, Line, Remedy
from whet.doctor.modes.compiler import TunedOp
from whet.doctor.modes.loaded import EARLY_ENDS, OutputError
from whet.doctor.modes.second import run_again
from whet.doctor.modes.variants import EAGER
from whet.doctor.modes.verdict import (
    TIMED_BY_HAND,
    ModeTrial,
    StepProfile,
    TrialOfModes,
    misread_ns,
)
from whet.doctor.subject import SecondRun, SubjectSource
from whet.targets.inductor.ptxas import two_versions

# The device is idle for more than half of a step.
HOST_BOUND_BELOW = 0.5

# Kernels so short, and so many, that launching takes as long as computing.
SHORT_KERNEL_NS = 10_000.0
MANY_KERNELS = 4

# A careful timer has to contradict a pick by so much.
CONTRADICTED_ABOVE = 1.1

_VENDOR = ("addmm", "mm", "bmm", "_mkl_linear", "mkldnn", "convolution", "bias_addmm")

_HALF = ("float16", "bfloat16")

_COMES_FROM = {
    "eager": "it is there as soon as Dynamo traces the model (backend='eager'), before anything is "
    "compiled: the model's own code does something else under the compiler",
    "aot_eager": "it comes with AOTAutograd (backend='aot_eager')",
    "aot_eager_decomp_partition": "it comes with the decomposition of operations "
    "(backend='aot_eager_decomp_partition')",
    "inductor": "it comes from the code that Inductor generates, also with "
    "torch._inductor.config.max_fusion_size = 1, which fuses no kernels",
    "fusion": "it comes from fusing: with torch._inductor.config.max_fusion_size = 1 it is gone",
}

_FAILS_IN = {
    "eager": "Dynamo",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "the decomposition of operations",
    "": "Inductor",
}


def symptoms(trial: TrialOfModes, place: Line, gpu: bool) -> list[Finding]:
    timed = [one for one in trial.modes if one.median_ns]
    found = [*_picks(timed, place), *_against_vendor(timed, place), *_compiled_again(timed, place)]
    if gpu:
        found = [
            *_built_twice(timed, place),
            *_skipped(timed, place),
            *_recorded_again(timed, place),
            *found,
        ]
        chosen = trial.verdict.mode if trial.verdict is not None else EAGER
        found += [
            one
            for mode in timed
            if mode.mode == chosen and mode.step is not None
            for one in _host_bound(mode, mode.step, timed, place)
        ]
    return found


def unheard(trial: TrialOfModes) -> list[str]:
    """A line for what this torch would not tell."""
    said: dict[str, list[str]] = {}
    for one in trial.modes:
        if one.not_heard:
            said.setdefault(one.not_heard, []).append(one.mode)
    return [f"not known of {', '.join(modes)}: {what}" for what, modes in said.items()]


def notes(trial: TrialOfModes) -> list[str]:
    """What a benchmark by hand would misread, which choice each tuned operation got, and what the
    compiler hints at; none is a fault."""
    said: dict[str, None] = dict.fromkeys(_misread(trial))
    for mode in trial.modes:
        for table in mode.autotune:
            said[_picked(table)] = None
    for mode in trial.modes:
        for hint in mode.perf_hints:
            if "on CPU" not in hint:
                said[f"the compiler hints in {mode.mode}: {hint}"] = None
    return list(said)


def _misread(trial: TrialOfModes) -> list[str]:
    read = [(one.mode, ns) for one in trial.modes if (ns := misread_ns(one)) is not None]
    if not read:
        return []
    figures = ", ".join(f"{ns / 1e6:.3g} ms for {mode}" for mode, ns in read)
    return [
        f"{TIMED_BY_HAND} calls after a single warm-up call would read {figures}, since the second "
        "and third call are slow; warm up with at least three calls"
    ]


def _picked(table: TunedOp) -> str:
    name, ms = table.choices[0]
    text = f"autotuning chose {_first(name)} for {table.name} of {table.shapes}"
    if len(table.choices) < 2:
        return f"{text}: there was no other choice"
    other, other_ms = table.choices[1]
    slower = f"{100 * (other_ms / ms - 1):.0f} % slower" if ms else "slower"
    return f"{text}; of {len(table.choices)} choices the next, {_first(other)}, is {slower}"


def _first(name: str) -> str:
    return name.split(" ")[0]


def _built_twice(modes: Sequence[ModeTrial], place: Line) -> Iterator[Finding]:
    tuned = [one for one in modes if one.autotune]
    versions = two_versions() if tuned else None
    if versions is None:
        return
    theirs, ours, path = versions
    count = max(sum(len(table.choices) for table in one.autotune) for one in tuned)
    yield Finding(
        "two-assemblers",
        f"Inductor's workers assemble with ptxas {theirs}, of torch's wheel, and the process that "
        f"asks them with {ours}, of Triton's: it does not find what they have built, and builds "
        f"its {count} choices again, one after the other",
        place,
        (Remedy(f"set TRITON_PTXAS_PATH={path}, or call whet.install(inductor=True)"),),
    )


def _skipped(modes: Sequence[ModeTrial], place: Line) -> Iterator[Finding]:
    skipped: dict[str, list[str]] = {}
    for one in modes:
        if one.cudagraph_skip:
            skipped.setdefault(one.cudagraph_skip, []).append(one.mode)
    remedy = Remedy("remove the cause, or use a mode without CUDA graphs")
    for why, names in skipped.items():
        yield Finding("cuda-graphs", f"in {' and '.join(names)}: {why}", place, (remedy,))


def _recorded_again(modes: Sequence[ModeTrial], place: Line) -> Iterator[Finding]:
    again = [one for one in modes if one.recorded_again]
    if not again:
        return
    without = next((one for one in modes if one.mode == "max-autotune-no-cudagraphs"), None)
    named = ", ".join(f"{one.mode} ({one.recorded_again} in 8 steps)" for one in again)
    remedies = [
        Remedy(
            "pass inputs at the same addresses: copy them into fixed tensors, or mark those that "
            "never move with torch._dynamo.mark_static_address"
        )
    ]
    if without is not None and (remedy := _instead(again[0], without)).works:
        remedies.append(remedy)
    yield Finding(
        "graph-recording", f"CUDA graphs are recorded again in {named}", place, tuple(remedies)
    )


def _instead(now: ModeTrial, other: ModeTrial) -> Remedy:
    before, after = (now.median_ns or 0.0) / 1e6, (other.median_ns or 0.0) / 1e6
    text = f"use mode='{other.mode}'"
    return Remedy(text, f"tried: {before:.3g} → {after:.3g} ms a call", works=after < before)


def _host_bound(
    mode: ModeTrial, step: StepProfile, modes: Sequence[ModeTrial], place: Line
) -> Iterator[Finding]:
    total, device = mode.median_ns or 0.0, step.device_ns or 0.0
    if not device or device > HOST_BOUND_BELOW * total:
        return
    kernels = step.device_kernels or 0.0
    short = kernels >= MANY_KERNELS and device / kernels < SHORT_KERNEL_NS
    evidence = (
        f"in {mode.mode} the device computes for {device / 1e6:.3g} of the {total / 1e6:.3g} ms of "
        f"a call and waits for the host otherwise: {kernels:.0f} kernels in "
        f"{step.launches or 0:.0f} launches"
    )
    if short:
        evidence += f", of {device / kernels / 1e3:.1f} µs each"
    graphs = [one for one in modes if one.mode in ("reduce-overhead", "max-autotune")]
    tried = [_instead(mode, one) for one in graphs if one is not mode]
    helpful = [one for one in tried if one.works]
    larger = Remedy("compute more in a call: a larger batch takes the host no longer")
    yield Finding("launch-overhead" if short else "host-bound", evidence, place, (*helpful, larger))


def _tables(modes: Iterable[ModeTrial]) -> Iterator[tuple[str, TunedOp]]:
    """Each operation once: the modes that tune it share its choices."""
    seen: set[tuple[str, str]] = set()
    for mode in modes:
        for table in mode.autotune:
            if (table.name, table.shapes) not in seen:
                seen.add((table.name, table.shapes))
                yield mode.mode, table


def _picks(modes: Sequence[ModeTrial], place: Line) -> Iterator[Finding]:
    for name, table in _tables(modes):
        careful, pick = table.careful_ms, table.choices[0][0]
        if pick not in careful:
            continue
        best = min(careful, key=lambda one: careful[one])
        if careful[pick] <= CONTRADICTED_ABOVE * careful[best]:
            continue
        evidence = (
            f"{name} chose {_first(pick)} for {table.name} of {table.shapes}; timed again it takes "
            f"{careful[pick]:.3g} ms, and {_first(best)} takes {careful[best]:.3g}"
        )
        yield Finding("autotune-pick", evidence, place, (_pick_remedy(best),))


def _pick_remedy(best: str) -> Remedy:
    if _is_vendor(best):
        return Remedy('options={"max_autotune_gemm_backends": "ATEN"} keeps the vendor library')
    return Remedy(
        "compile again with an empty cache: torch timed the choices once and keeps its pick there"
    )


def _is_vendor(choice: str) -> bool:
    return _first(choice).removeprefix("aten::") in _VENDOR or choice.startswith("_mkl")


def _against_vendor(modes: Sequence[ModeTrial], place: Line) -> Iterator[Finding]:
    """Whole models: tuned products against those of the vendor's library, at 95 %."""
    by_name = {one.mode: one for one in modes}
    tuned, vendor = by_name.get("max-autotune-no-cudagraphs"), by_name.get("gemm-aten")
    if tuned is None or vendor is None or tuned.interval_ns is None or vendor.interval_ns is None:
        return
    if tuned.interval_ns[0] <= vendor.interval_ns[1]:
        return
    evidence = (
        "with generated products of matrices a call takes "
        f"{(tuned.median_ns or 0) / 1e6:.3g} ms, with the vendor's library "
        f"{(vendor.median_ns or 0) / 1e6:.3g}"
    )
    remedy = Remedy(
        'options={"max_autotune_gemm_backends": "ATEN", …}',
        "tried: the difference is larger than the noise",
        works=True,
    )
    yield Finding("vendor-library", evidence, place, (remedy,))


def _compiled_again(modes: Sequence[ModeTrial], place: Line) -> Iterator[Finding]:
    grouped: dict[str, list[str]] = {}
    for mode in modes:
        warm = mode.warm
        if warm is None or not (warm.misses or warm.bypasses or warm.tuned):
            continue
        done = [
            f"{count} {what}"
            for count, what in (
                (warm.misses, "compiled again"),
                (warm.bypasses, "not looked up in the cache"),
                (warm.tuned, "tuned again"),
            )
            if count
        ]
        told = f" ({warm.why})" if warm.why else ""
        grouped.setdefault(f"{', '.join(done)}{told}", []).append(
            f"{mode.mode} {warm.first_call_s:.1f} s"
        )
    for what, names in grouped.items():
        frozen = "freezing" in what
        text = (
            "do without freezing where the start matters: torch does not cache frozen graphs"
            if frozen
            else "keep TORCHINDUCTOR_CACHE_DIR on a disk that all processes share, and make what "
            "the graph depends on the same in all"
        )
        evidence = (
            f"of its graphs, a second process that finds the caches filled has {what}; its first "
            f"call takes {', '.join(names)}"
        )
        yield Finding("cold-start", evidence, place, (Remedy(text),))


def numeric_notes(trial: TrialOfModes) -> list[str]:
    """Differences that rounding explains, and modes that compute the very same."""
    return [*_explained(trial.modes), *_same_code(trial.modes), *_same_bits(trial.modes)]


def numeric_findings(trial: TrialOfModes, place: Line) -> list[Finding]:
    """Results that are further from float64 than rounding explains."""
    findings = []
    for mode in trial.modes:
        far = [one for one in mode.outputs if one.far]
        if far:
            findings.append(_far_off(mode, far, place))
    return findings


def _far_off(mode: ModeTrial, far: Sequence[OutputError], place: Line) -> Finding:
    worst = max(far, key=lambda one: one.error)
    evidence = (
        f"{worst.name} of {mode.mode} is {worst.error:.0e} from float64, eager's "
        f"{worst.eager_error:.0e} ({len(far)} of {len(mode.outputs)} results are that far)"
    )
    if mode.far_from:
        evidence += f"; it begins at the layer '{mode.far_from}'"
    if mode.far_part in _COMES_FROM:
        evidence += f"; {_COMES_FROM[mode.far_part]}"
    return Finding("numerics", evidence, place, tuple(_remedies(mode, worst)))


def _remedies(mode: ModeTrial, worst: OutputError) -> list[Remedy]:
    remedies = []
    if mode.far_part == "eager":
        where = f"in '{mode.far_from}'" if mode.far_from else "in the model"
        remedies.append(
            Remedy(f"look for code {where} that asks torch.compiler.is_compiling(), or the like")
        )
    if mode.far_from:
        remedies.append(
            Remedy(f"keep '{mode.far_from}' out of the compiler with torch.compiler.disable")
        )
    if mode.far_part not in EARLY_ENDS:
        remedies += _for_rounding(worst.dtype)
    return remedies or [Remedy("compare the layers one by one with torch.testing.assert_close")]


def _for_rounding(dtype: str) -> list[Remedy]:
    import torch

    if dtype in _HALF:
        text = (
            "set torch._inductor.config.emulate_precision_casts = True, which rounds between "
            "operations as eager does"
        )
    elif dtype == "float32" and torch.get_float32_matmul_precision() != "highest":
        text = "torch.set_float32_matmul_precision('highest') keeps products in float32"
    else:
        return []
    return [Remedy(text)]


def _explained(modes: Sequence[ModeTrial]) -> list[str]:
    grouped: dict[str, list[str]] = {}
    for mode in modes:
        off = [one for one in mode.outputs if not one.close]
        if off and not any(one.far for one in off):
            grouped.setdefault(_cause(off), []).append(mode.mode)
    return [
        f"results of {', '.join(names)} differ from eager's by more than "
        f"torch.testing.assert_close allows: {cause}"
        for cause, names in grouped.items()
    ]


def _cause(off: Sequence[OutputError]) -> str:
    worst = max(off, key=lambda one: one.error)
    if worst.error < 0.8 * worst.eager_error and worst.dtype in _HALF:
        return (
            "they are closer to float64 than eager's, since Inductor keeps what it fuses in float32"
        )
    if worst.error < 0.8 * worst.eager_error:
        return "they are closer to float64 than eager's"
    return "both are about as far from float64, which another order of additions explains"


def _same_code(modes: Sequence[ModeTrial]) -> list[str]:
    grouped: dict[str, list[str]] = {}
    for mode in modes:
        if mode.same_as:
            grouped.setdefault(mode.same_as, []).append(mode.mode)
    return [
        f"{first} and {', '.join(names)} generate the same code, checks of inputs aside: only "
        f"{first} was profiled and compared with float64"
        for first, names in grouped.items()
    ]


def _same_bits(modes: Sequence[ModeTrial]) -> list[str]:
    """Whether `reduce-overhead` is less exact than `default`, as is often said."""
    by_name = {one.mode: one for one in modes if one.digest and one.mode != EAGER}
    plain, graphs = by_name.get("default"), by_name.get("reduce-overhead")
    if plain is None or graphs is None or graphs.same_as:
        return []
    if plain.digest == graphs.digest:
        return ["default and reduce-overhead give the same results to the last bit"]
    return [
        f"default is {plain.error or 0:.0e} from float64, reduce-overhead {graphs.error or 0:.0e}"
    ]


def failure_findings(
    trial: TrialOfModes,
    place: Line,
    shrunk: Callable[[str], Mapping[str, Any]] = lambda mode: {},
) -> list[Finding]:
    """One for each way to fail, however many modes fail that way. `shrunk` is asked for a mode's
    `smallest_failure`."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for one in trial.modes:
        if one.problem and one.mode != EAGER:
            grouped.setdefault((one.status, _short(one.problem)), []).append(one.mode)
    return [
        _failure(modes, problem, shrunk(modes[0]) if status == Status.RUN_ERROR else {}, place)
        for (status, problem), modes in grouped.items()
    ]


def shrunk_by(
    source: SubjectSource, progress: Callable[[str], None]
) -> Callable[[str], Mapping[str, Any]]:
    def shrunk(mode: str) -> Mapping[str, Any]:
        progress(f"looking for the smallest part of the model on which {mode} fails")
        with tempfile.TemporaryDirectory(prefix="whet-doctor-") as caches:
            return run_again(SecondRun(source, caches, mode, failing=True))

    return shrunk


def _short(problem: str) -> str:
    """Without the name of a generated file, which differs from mode to mode."""
    return problem.partition(" (in ")[0]


def _failure(modes: Sequence[str], problem: str, told: Mapping[str, Any], place: Line) -> Finding:
    fail = "fails" if len(modes) == 1 else "fail"
    evidence = f"{' and '.join(modes)} {fail}: {problem}"
    if told.get("everywhere"):
        evidence += "; so does x + 1, so that the cause is not in the model"
        remedy = Remedy("mend the installation: torch, and the compiler that Inductor calls")
        return Finding("failing-mode", evidence, Line(), (remedy,))
    repro = str(told.get("repro", ""))
    remedy = Remedy(f"report it to pytorch with {'this program' if repro else 'the model'}")
    if told.get("layer"):
        evidence += f"; the smallest part that fails alone is the layer '{told['layer']}'"
    if "layer" in told:
        evidence += f"; it fails in {_FAILS_IN[told.get('early_end', '')]}"
        place = Line(told["file"], told["line"], told["code"])
    if told.get("without"):
        text = f"keep '{told['layer']}' out of the compiler with torch.compiler.disable"
        remedy = Remedy(text, "tried: the model then compiles", works=True)
    return Finding("failing-mode", evidence, place, (remedy,), repro=repro)
