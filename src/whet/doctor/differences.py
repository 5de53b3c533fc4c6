"""What differs between a mode's results and eager's, in words, with the likely cause."""

from __future__ import annotations

from collections.abc import Sequence

from whet.doctor.finding import Finding, Line, Remedy
from whet.doctor.modes.mode_trial import ModeTrial
from whet.doctor.modes.numerics import EARLY_ENDS, OutputError
from whet.doctor.modes.variants import EAGER
from whet.doctor.modes.verdict import TrialOfModes

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


def numeric_notes(trial: TrialOfModes) -> list[str]:
    """Differences that rounding explains, and modes that compute the very same."""
    return [*_explained(trial.modes), *_same_code(trial.modes), *_same_bits(trial.modes)]


def numeric_findings(trial: TrialOfModes, place: Line) -> list[Finding]:
    """Results that are further from float64 than rounding explains."""
    findings = []
    for mode in trial.modes:
        far = [one for one in mode.outputs if one.far]
        if far:
            findings.append(_finding(mode, far, place))
    return findings


def _finding(mode: ModeTrial, far: Sequence[OutputError], place: Line) -> Finding:
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
