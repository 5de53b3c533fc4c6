"""GPUs by the names people use."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from whet.core.errors import UsageError
from whet.targets.triton.packed.architectures import architecture, architectures


@pytest.mark.parametrize(
    ("typed", "label"),
    [
        ("h100", "h100 (sm_90)"),
        ("H200", "h200 (sm_90)"),
        ("gh200", "gh200 (sm_90)"),
        ("a100", "a100 (sm_80)"),
        ("a10", "a10 (sm_86)"),
        ("rtx3090", "rtx3090 (sm_86)"),
        ("l40s", "l40s (sm_89)"),
        ("rtx4090", "rtx4090 (sm_89)"),
        ("4090", "rtx4090 (sm_89)"),
        ("b200", "b200 (sm_100)"),
        ("b300", "b300 (sm_103)"),
        ("rtx5090", "rtx5090 (sm_120)"),
        ("t4", "t4 (sm_75)"),
        ("v100", "v100 (sm_70)"),
        ("mi100", "mi100 (gfx908)"),
        ("mi250", "mi250 (gfx90a)"),
        ("mi300x", "mi300x (gfx942)"),
        ("mi325x", "mi325x (gfx942)"),
        ("mi355x", "mi355x (gfx950)"),
        ("hopper", "hopper (sm_90)"),
        # What drivers say.
        ("NVIDIA H100 80GB HBM3", "h100 (sm_90)"),
        ("NVIDIA A100-SXM4-80GB", "a100 (sm_80)"),
        ("NVIDIA GeForce RTX 4090", "rtx4090 (sm_89)"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada (sm_89)"),
        ("NVIDIA RTX A6000", "a6000 (sm_86)"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000 (sm_120)"),
        ("AMD Instinct MI300X", "mi300x (gfx942)"),
        ("amd_radeon-rx 7900 xtx", "rx7900xtx (gfx1100)"),
        ("gfx942:sramecc+:xnack-", "gfx942"),
    ],
)
def test_a_name_stands_for_an_architecture_and_stays_beside_it(typed: str, label: str) -> None:
    assert architecture(typed).label == label


def test_a_name_has_the_limits_of_its_architecture() -> None:
    assert architecture("h100").limits == architecture("sm_90").limits
    assert architecture("h100").target == architecture("sm_90").target


def test_gpus_of_one_architecture_are_compiled_for_once() -> None:
    found = architectures(["h100", "gfx942", "sm_90", "h200"])

    assert [one.label for one in found] == ["h100, h200 (sm_90)", "gfx942"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("h10", "h100 (sm_90)"),
        ("h1000", "h100 (sm_90)"),
        ("hoper", "hopper (sm_90)"),
        ("a1000", "a100 (sm_80)"),
        ("rtx4095", "rtx4090 (sm_89)"),
        ("b20", "b200 (sm_100)"),
        ("mi30", "mi300 (gfx942)"),
        ("gfx94", "gfx942"),
        ("sm_9", "sm_90"),
    ],
)
def test_a_typo_suggests_a_gpu_of_the_same_family(typed: str, meant: str) -> None:
    with pytest.raises(UsageError) as raised:
        architecture(typed)

    assert f"mean {meant}?" in str(raised.value)


def test_a_name_that_many_have_is_refused_with_all_of_them() -> None:
    with pytest.raises(UsageError, match=r"b200 \(sm_100\), b300 \(sm_103\), rtx5090 \(sm_120\)"):
        architecture("blackwell")


@pytest.mark.parametrize("typed", ["v100", "t4", "p100", "rx6900xt"])
def test_what_triton_does_not_support_is_said(typed: str) -> None:
    assert typed in architecture(typed).doubt
    assert architecture("h100").doubt == architecture("mi250").doubt == ""


@pytest.mark.parametrize(
    ("typed", "capability"), [("h100", (9, 0)), ("b300", (10, 3)), ("gfx942", (9, 4))]
)
def test_the_capability_is_what_torch_would_say(typed: str, capability: tuple[int, int]) -> None:
    assert architecture(typed).capability == capability
