"""Findings that only a timed model shows: graphs recorded again, a waiting device, picks that do
not hold, a second process that compiles again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from whet.doctor.finding import Finding, Line, Remedy
from whet.doctor.modes.compiler import TunedOp
from whet.doctor.modes.mode_trial import ModeTrial, StepProfile
from whet.doctor.modes.variants import EAGER
from whet.doctor.modes.verdict import TIMED_BY_HAND, TrialOfModes, misread_ns

# The device is idle for more than half of a step.
HOST_BOUND_BELOW = 0.5

# Kernels so short, and so many, that launching takes as long as computing.
SHORT_KERNEL_NS = 10_000.0
MANY_KERNELS = 4

# A careful timer has to contradict a pick by so much.
CONTRADICTED_ABOVE = 1.1

_VENDOR = ("addmm", "mm", "bmm", "_mkl_linear", "mkldnn", "convolution", "bias_addmm")


def symptoms(trial: TrialOfModes, place: Line, gpu: bool) -> list[Finding]:
    timed = [one for one in trial.modes if one.median_ns]
    found = [*_picks(timed, place), *_against_vendor(timed, place), *_compiled_again(timed, place)]
    if gpu:
        found = [*_skipped(timed, place), *_recorded_again(timed, place), *found]
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
