"""Launchers as Triton's versions have them, over a C function that writes down what it is handed.

Only the interface is Triton's: the names and the order of what a launcher hands over. What arrives
is decoded as the C function of that version would, by places, so that a value in a wrong place is
found out: tensors and integers for pointers become addresses, and constants are left out.
"""

# ruff: noqa: N803 - parameters of launchers are written as Triton writes them

import os
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import triton

import whet
from whet.engine.settings import resolve_settings
from whet.testing.fake_triton import fake_driver, told

VERSIONS = ("3.6", "3.7", "3.8", "3.9")


@dataclass(frozen=True)
class Made:
    """One launch, as the device would see it. `by` is "triton" where hooks were handed over."""

    function: Any
    grid: tuple[int, int, int]
    stream: int
    values: tuple[Any, ...]
    by: str = field(compare=False)


class Recorder:
    """What `launch` of a C module is, with a memory. `kinds` are the signature's."""

    def __init__(self, kinds: list[Any]) -> None:
        self.kinds = kinds

    def keep(
        self,
        grid: Any,
        stream: Any,
        function: Any,
        flags: Any,
        metadata: Any,
        hooks: Any,
        values: Any,
    ) -> None:
        assert flags == (False, False)
        assert type(metadata) is tuple
        assert len(values) == len(self.kinds)
        assert hooks == (None, None) or all(hasattr(one, "calls") for one in hooks)
        kept = tuple(
            self._decoded(kind, value)
            for kind, value in zip(self.kinds, values, strict=True)
            if kind != "constexpr"
        )
        by = "whet" if hooks == (None, None) else "triton"
        if by == "triton":
            hooks[0](metadata)
        made.append(Made(function, grid, stream, kept, by))
        if by == "triton":
            hooks[1](metadata)

    def _decoded(self, kind: str, value: Any) -> Any:
        if kind.startswith("*"):
            return 0 if value is None else value if type(value) is int else value.data_ptr()
        assert type(value) in ((float,) if kind.startswith("fp") else (int, bool))
        return value


made: list[Made] = []


class Base:
    num_ctas = 1
    global_scratch_size = global_scratch_align = profile_scratch_size = profile_scratch_align = 0
    launch_cooperative_grid = launch_pdl = False
    gsan_enabled = False

    def __init__(self, src: Any, metadata: Any) -> None:
        self.recorder = Recorder(list(src.signature.values()))
        self.arg_annotations = ["annotations", self]
        self.kernel_signature = b"signature"


class Launcher36(Base):
    def launch(self, x, y, z, stream, function, coop, pdl, scratch, profile, *rest) -> None:
        assert scratch is None
        assert profile is None
        metadata, _, enter, leave, *values = rest
        self.recorder.keep(
            (x, y, z), stream, function, (coop, pdl), metadata, (enter, leave), values
        )

    def __call__(self, gridX, gridY, gridZ, stream, function, *args) -> None:
        global_scratch = profile_scratch = None
        self.launch(
            gridX,
            gridY,
            gridZ,
            stream,
            function,
            self.launch_cooperative_grid,
            self.launch_pdl,
            global_scratch,
            profile_scratch,
            *args,
        )


class Since37(Base):
    def launch(
        self,
        x,
        y,
        z,
        stream,
        function,
        coop,
        pdl,
        metadata,
        _,
        enter,
        leave,
        scratch,
        profile,
        annotations,
        signature,
        values,
    ) -> None:
        assert scratch is None
        assert profile is None
        assert annotations is self.arg_annotations
        assert signature is self.kernel_signature
        assert type(values) is tuple
        self.recorder.keep(
            (x, y, z), stream, function, (coop, pdl), metadata, (enter, leave), values
        )


class Launcher37(Since37):
    def __call__(
        self,
        gridX,
        gridY,
        gridZ,
        stream,
        function,
        kernel_metadata,
        launch_metadata,
        launch_enter_hook,
        launch_exit_hook,
        *args,
    ) -> None:
        global_scratch = profile_scratch = None
        self.launch(
            gridX,
            gridY,
            gridZ,
            stream,
            function,
            self.launch_cooperative_grid,
            self.launch_pdl,
            kernel_metadata,
            launch_metadata,
            launch_enter_hook,
            launch_exit_hook,
            global_scratch,
            profile_scratch,
            self.arg_annotations,
            self.kernel_signature,
            args,
        )


class Launcher38(Since37):
    def __call__(
        self,
        gridX,
        gridY,
        gridZ,
        stream,
        function,
        kernel_metadata,
        launch_metadata,
        launch_enter_hook,
        launch_exit_hook,
        *args,
    ) -> None:
        global_scratch = profile_scratch = None
        kernel_args = args
        if self.gsan_enabled:
            kernel_args = (*args, 0)
        self.launch(
            gridX,
            gridY,
            gridZ,
            stream,
            function,
            self.launch_cooperative_grid,
            self.launch_pdl,
            kernel_metadata,
            launch_metadata,
            launch_enter_hook,
            launch_exit_hook,
            global_scratch,
            profile_scratch,
            self.arg_annotations,
            self.kernel_signature,
            kernel_args,
        )


LAUNCHERS = {"3.6": Launcher36, "3.7": Launcher37, "3.8": Launcher38, "3.9": Launcher38}


@contextmanager
def launching(version: str = "3.9", launcher: Any = None):
    """A driver for tensors of the CPU, whose device has the number that torch gives to theirs."""
    before = os.environ.get("WHET_DIRECT")
    os.environ["WHET_DIRECT"] = "yes"
    made.clear()
    try:
        with fake_driver() as driver:
            driver.device = -1
            # One function for one program: the driver, which keeps no module, loads it every time.
            driver.utils.load_binary = lambda name, binary, shared, device: (
                None,
                zlib.crc32(binary),
                32,
                0,
                1024,
            )
            driver.launcher_cls = launcher or LAUNCHERS[version]
            yield driver
    finally:
        if before is None:
            del os.environ["WHET_DIRECT"]
        else:
            os.environ["WHET_DIRECT"] = before


def tuned(kernel: Any, configs: Any = None, **keywords: Any) -> Any:
    """By whet, of which the first config is the fastest."""
    configs = configs or [triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)]
    tuner = whet.autotune(configs=configs, **{"key": [], **keywords})(kernel)
    tuner.whet_timer = told(lambda config: 1000.0 + 1000.0 * (config is not tuner.configs[0]))
    return tuner


def used(tuner: Any) -> list[str]:
    """Who made each launch since this was asked last."""
    who = [one.by for one in made]
    made.clear()
    return who


def numbers(count: int = 64, dtype: Any = torch.float32, shift: int = 0) -> Any:
    """A tensor that begins `shift` elements behind an address that divides by 64."""
    whole = torch.zeros(count + 32, dtype=dtype)
    start = (-whole.data_ptr() % 64) // whole.element_size()
    return whole[start + shift : start + shift + count]


def settings() -> Any:
    return resolve_settings().settings
