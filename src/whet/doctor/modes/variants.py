"""What can be timed: eager, the modes of torch.compile, and the knobs behind them one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

EAGER = "eager"

MODES = (EAGER, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

_TUNED = {"max_autotune": True, "coordinate_descent_tuning": True}
_BACKENDS = "max_autotune_gemm_backends"


@dataclass(frozen=True)
class Variant:
    """A way to compile. `options` go to torch.compile; `settings` are of torch._inductor.config and
    hold for the whole process, since Dynamo reads them before any options count. `for_gpu` and
    `for_cpu` say where the knob does anything. With `by_whet`, whet makes Inductor's choices."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool | None = None
    for_gpu: bool = True
    for_cpu: bool = True
    for_training: bool = True
    by_whet: bool = False

    @property
    def looked_at_again(self) -> bool:
        """Whether a second process is worth its time: knobs share their caches' fate with the mode
        they are made of, unless they freeze."""
        return self.name in MODES or bool(self.settings) or self.by_whet

    @property
    def call(self) -> str:
        """What a user writes."""
        if self.name in MODES:
            return f"mode='{self.name}'"
        if self.by_whet:
            return "whet.install(inductor=True) and mode='max-autotune'"
        said = [
            f"torch._inductor.config.{name} = {value!r}" for name, value in self.settings.items()
        ]
        given = [f"options={dict(self.options)!r}"] if self.options else []
        given += ["dynamic=True"] if self.dynamic else []
        return " and ".join([*said, *given])


KNOBS = (
    Variant("max-autotune-whet", for_cpu=False, by_whet=True),
    Variant("gemm-aten", {**_TUNED, _BACKENDS: "ATEN"}, for_cpu=False),
    Variant("gemm-triton", {**_TUNED, _BACKENDS: "TRITON"}, for_cpu=False),
    Variant("gemm-cutlass", {**_TUNED, _BACKENDS: "CUTLASS,ATEN"}, for_cpu=False),
    Variant(
        "gemm-cpp",
        {"max_autotune": True, _BACKENDS: "CPP,ATEN"},
        {"freezing": True},
        for_gpu=False,
        for_training=False,
    ),
    Variant(
        "no-autotune",
        {"max_autotune": False, "triton.cudagraphs": True, "coordinate_descent_tuning": True},
        for_cpu=False,
    ),
    Variant("coordinate-descent", {"coordinate_descent_tuning": True}, for_cpu=False),
    Variant("freezing", settings={"freezing": True}, for_training=False),
    Variant("dynamic", dynamic=True),
)

NAMES = (*MODES, *(knob.name for knob in KNOBS))


def variant(name: str) -> Variant:
    return next((knob for knob in KNOBS if knob.name == name), Variant(name))


def knobs_for(gpu: bool, training: bool) -> tuple[str, ...]:
    """Those that may change anything on this device and for this kind of step."""
    return tuple(
        knob.name
        for knob in KNOBS
        if (knob.for_gpu if gpu else knob.for_cpu) and (knob.for_training or not training)
    )


def knobs_without_effect(gpu: bool, training: bool, timed: Sequence[str] = ()) -> list[str]:
    """Why those that were not timed were not."""
    others = [knob for knob in KNOBS if knob.name not in timed]
    here = [knob for knob in others if (knob.for_gpu if gpu else knob.for_cpu)]
    elsewhere = [knob.name for knob in others if knob not in here]
    inference = [knob.name for knob in here if training and not knob.for_training]
    device = "a GPU" if gpu else "a CPU"
    return [
        f"not timed, since they change nothing {why}: {', '.join(names)}"
        for why, names in ((f"on {device}", elsewhere), ("when training", inference))
        if names
    ]


def compiled(model: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The model, ready for its first call; changes settings of this process."""
    import torch

    if name == EAGER:
        return model
    made: Callable[..., Any]
    if name in MODES:
        made = torch.compile(model, mode=name)
        return made
    import torch._inductor.config as config

    chosen = variant(name)
    if chosen.by_whet:
        from whet.targets.triton.install import install

        # What whet finds lies beside torch's caches, as empty as these when the process begins.
        if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
            os.environ["WHET_STORE"] = f"{os.environ['TORCHINDUCTOR_CACHE_DIR']}.whet.db"
        install(inductor=True)
        made = torch.compile(model, mode="max-autotune")
        return made
    for setting, value in chosen.settings.items():
        setattr(config, setting, value)
    options = dict(chosen.options) or None
    made = torch.compile(model, options=options, dynamic=chosen.dynamic)
    return made
