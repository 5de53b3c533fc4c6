"""`whet demo`: the whole job, on the machine at hand."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import whet
from whet.cli.arguments.options import (
    JobsOption,
    JsonOption,
    QuietOption,
    SeedOption,
    StoreOption,
    option,
    resolved,
)
from whet.cli.commands.tune import nothing_yet, raise_for_failures, run_tuning, tune_keys
from whet.cli.terminal.output import (
    bar_text,
    fields,
    page,
    print_json,
    print_lines,
    shorten,
    three_digits,
    times_text,
    wrap,
)
from whet.cli.terminal.summary import (
    equals_text,
    failures,
    first_text,
    interruption,
    ledger,
    program,
    summary,
    timing_text,
    trials_text,
    whereabouts,
)
from whet.core.budget import Budget
from whet.core.errors import WhetError
from whet.store import printable, store_place
from whet.targets.files import load_module

if TYPE_CHECKING:
    from whet.core.run import Result
    from whet.core.space import Space
    from whet.engine.settings import Settings

DEFAULT_BUDGET = "45s"

Flags = Mapping[str, str | None]


class CProduct:
    """A matrix product to tune, n × n × n, and what its speed is held against: `matmul.c`, against
    NumPy on one thread. `unit` is that of its speeds, in FLOP/s."""

    unit = 1e9
    rival = "NumPy"
    rival_remark = "one thread"
    checked_against = "NumPy"

    def __init__(self, n: int) -> None:
        self.n = n
        self._example = load_module(example_file("matmul.py"))
        self._target = self._made()

    def _made(self) -> Any:
        return self._example.product(self.n)

    @property
    def title(self) -> str:
        return f"A blocked matrix product in C, on {self._target.workload().device.name}"

    @property
    def space(self) -> Space:
        space: Space = self._target.space
        return space

    def rival_seconds(self) -> float:
        return float(self._example.numpy_seconds(self.n))

    def plain_seconds(self) -> float | None:
        """None where there is no textbook version of it."""
        return _measured_s(self._example.plain(self.n), 7)

    def tune(self, settings: Settings, flags: Flags, quiet: bool) -> tuple[Result | None, bool]:
        """The result, and whether Ctrl-C ended it; None where that came before any measurement."""
        return run_tuning(self._target, settings, quiet=quiet)

    def nothing_yet(self) -> dict[str, Any]:
        return nothing_yet(self._target)


def _measured_s(target: Any, samples: int) -> float:
    from whet.engine import Plan, tune

    result = tune(
        target, store=":memory:", plan=Plan.fixed(samples), jobs=1, progress=False, mode="tune"
    )
    return (result.best.median_ns or math.inf) / 1e9


class ScheduleProduct(CProduct):
    """`whet.schedule` of a product, likewise."""

    def _made(self) -> Any:
        from whet.targets.schedule.payloads import matmul
        from whet.targets.schedule.target import schedule

        return schedule(matmul(self.n, self.n, self.n), name="demo_schedule")

    @property
    def title(self) -> str:
        device = self._target.workload().device.name
        return f"A matrix product scheduled with MLIR's transform dialect, on {device}"

    def plain_seconds(self) -> float:
        from whet.targets.schedule.payloads import matmul
        from whet.targets.schedule.target import schedule

        return _measured_s(schedule(matmul(self.n, self.n, self.n), _PLAIN, name="demo_plain"), 3)


class TritonProduct(CProduct):
    """`matmul_triton.py`, against torch's product by the same timer."""

    unit = 1e12
    rival = "torch"
    rival_remark = "torch.matmul, the vendor's library"
    checked_against = "torch"

    def __init__(self, n: int) -> None:
        from whet.targets.triton.offline.kernel import Kernel

        self.n = n
        self._path = example_file("matmul_triton.py")
        self._example = load_module(self._path)
        kernel = self._example.matmul_fp16
        self._kernel = Kernel(kernel, kernel)

    @property
    def title(self) -> str:
        from whet.targets.triton import device

        return (
            f"An fp16 matrix product in Triton, on {device.describe(device.current_index()).name}"
        )

    @property
    def space(self) -> Space:
        from whet.targets.triton.keys import Menu

        return Menu(self._kernel.tuner.configs).space

    def rival_seconds(self) -> float:
        import numpy as np

        from whet.measure.gpu.timer import CudaTimer

        timer, run = CudaTimer(), _Repeated(self._example.torch_product(self.n))
        return float(np.median(timer.measure(run, 51, timer.warm(run)).samples)) / 1e9

    def plain_seconds(self) -> None:
        return None

    def tune(self, settings: Settings, flags: Flags, quiet: bool) -> tuple[Result | None, bool]:
        keys = [dict.fromkeys("MNK", self.n)]
        done, interrupted = tune_keys(
            self._kernel, keys, flags, store=settings.store, path=self._path, quiet=quiet
        )
        raise_for_failures(done)
        return (done[0].result if done else None), interrupted

    def nothing_yet(self) -> dict[str, Any]:
        return {"v": 1, "kernel": self._kernel.name, "outcome": "interrupted", "best": None}


def demo(
    n: Annotated[
        int | None,
        option("--n N", "Rows and columns (default: 768 on a CPU, 4096 on a GPU).", min=16),
    ] = None,
    cpu: Annotated[bool, option("--cpu", "Use the C version even if there is a GPU.")] = False,
    schedule: Annotated[
        bool, option("--schedule", "Schedule it with MLIR's transform dialect (extra 'mlir').")
    ] = False,
    budget: Annotated[
        str | None, option("--budget BUDGET", f"When to stop (default: {DEFAULT_BUDGET}).")
    ] = None,
    seed: SeedOption = None,
    jobs: JobsOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Tune a matrix product on this machine.

    Uses Triton if it is installed and torch sees a GPU, otherwise C.

    Examples:
      whet demo                    takes under a minute
      whet demo --cpu              use the C version even if there is a GPU
      whet demo --schedule         schedule it with MLIR
      whet demo --n 256            a smaller product, quicker
      whet demo --store :memory:   start from scratch and store nothing
    """
    from whet.cli import INTERRUPTED

    found = resolved(budget=budget, seed=seed, jobs=jobs, store=store)
    settings = found.settings
    if found.sources["budget"].kind == "default":
        budget = DEFAULT_BUDGET
        settings = replace(settings, budget=Budget.parse(budget))
    with redirect_stdout(sys.stderr):
        product = _product(n, cpu, schedule)
    if not json:
        print_lines([*_opening(product), ""])
        sys.stdout.flush()
    before = product.rival_seconds()
    flags = {"budget": budget, "seed": seed, "jobs": jobs, "store": store}
    result, interrupted = product.tune(settings, flags, quiet)
    if result is None:
        print_json(product.nothing_yet()) if json else print(
            "interrupted before anything was measured"
        )
    else:
        # On a busy machine the rival gets the better of two occasions: the claim is ours to prove.
        speeds = _numbers(
            result, product, min(before, product.rival_seconds()), product.plain_seconds()
        )
        place = store_place(settings.store)
        if json:
            print_json({**result.to_json(), "demo": speeds})
        elif result.source == "waited":
            print_lines(summary(result, place, store))
        else:
            print_lines(_closing(result, product, speeds, place, store))
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _product(n: int | None, cpu: bool, schedule: bool) -> CProduct:
    if schedule:
        return ScheduleProduct(n or 768)
    return CProduct(n or 768) if cpu or not gpu_ready() else TritonProduct(n or 4096)


def gpu_ready() -> bool:
    """Whether Triton is installed and torch sees a device."""
    try:
        import torch
        import triton  # noqa: F401
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


class _Repeated:
    """A call as something that a timer runs."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def repeat(self, n: int) -> None:
        for _ in range(n):
            self._call()


def _unit_text(product: CProduct) -> str:
    return {1e9: "GFLOP/s", 1e12: "TFLOP/s"}[product.unit]


def _numbers(
    result: Result, product: CProduct, rival_s: float, plain_s: float | None
) -> dict[str, float | int | None]:
    """`{"n": 768, "best_gflops": …, "numpy_gflops": …, "percent_of_numpy": …}`."""
    best, first = result.best.median_ns, result.first.median_ns if result.first else None
    suffix = _unit_text(product)[0].lower() + "flops"
    rival = product.rival.lower()

    def speed(seconds: float) -> float:
        return 2 * product.n**3 / seconds / product.unit

    numbers: dict[str, float | int | None] = {
        "n": product.n,
        f"best_{suffix}": None if best is None else speed(best / 1e9),
        f"first_{suffix}": None if first is None else speed(first / 1e9),
        f"{rival}_{suffix}": speed(rival_s),
        f"percent_of_{rival}": None if best is None else 100e9 * rival_s / best,
    }
    return numbers if plain_s is None else {**numbers, f"plain_{suffix}": speed(plain_s)}


def _opening(product: CProduct) -> list[str]:
    what, _, where = product.title.rpartition(", on ")
    n = product.n
    title = f"{what}, {n} × {n} × {n}, on {where}"
    return [*wrap(title, page(), indent=2), "", *_space_lines(product.space)]


def _space_lines(space: Space) -> list[str]:
    varied = [parameter for parameter in space.parameters if len(parameter.values) > 1]
    rows = {
        parameter.name: ", ".join(str(value) or "''" for value in parameter.values)
        for parameter in varied
    }
    valid = "?" if space.count is None else f"{space.count:,}"
    combinations = math.prod(len(parameter.values) for parameter in varied)
    listed = not space.constraints and space.count != combinations
    what = "configs" if listed else f"valid configs out of {combinations:,} combinations"
    title = f"space    {valid} {what}"
    margin = max(7, *(len(name) + 2 for name in rows))
    return [title, *(f"  {line}" for line in fields(rows, page() - 2, margin))]


def _closing(
    result: Result,
    product: CProduct,
    numbers: Mapping[str, float | int | None],
    location: str,
    store: str | None,
) -> list[str]:
    width = page()
    parts: dict[str, str | Sequence[str]] = {"best": [str(result.config), timing_text(result.best)]}
    if result.equals:
        parts["equal"] = equals_text(result)
    if result.first is not None:
        parts["first"] = [str(result.first.config), first_text(result)]
    parts["trials"] = trials_text(result)
    if result.run.coverage is not None:
        parts["space"] = result.run.coverage.lines
    parts["check"] = (
        f"passed: the result of the best config matches {product.checked_against}, up to rounding"
    )
    lines = [*interruption(result), *_speeds(result, product, numbers, width), ""]
    lines += fields(parts, width)
    lines += failures(result.trials, width)
    lines += ["", *ledger(result, width)]
    more = [f"{program()} tune FILE.py:NAME      tune your own kernel; see the README"]
    if result.source == "stored":
        more.append(f"{program()} demo --store :memory:  tune again from scratch")
    if location != ":memory:":
        where = f" --store {shlex.quote(printable(store))}" if store else ""
        look = "explore" if find_spec("starlette") else "explore --out demo.html"  # needs no server
        more.append(f"{program()} {look}{where}    look at it in the browser")
    return [*lines, "", *whereabouts(result, location, store, more)]


def _speeds(
    result: Result, product: CProduct, numbers: Mapping[str, float | int | None], width: int
) -> list[str]:
    """Bars of speed: the plain loop, the author's first config, the best one, and the rival."""
    unit = _unit_text(product)
    rival, suffix = product.rival.lower(), unit[0].lower() + "flops"
    against_first = "" if result.speedup is None else f"{times_text(result.speedup)} the first, "
    against_rival = f"{numbers[f'percent_of_{rival}']:.0f} % of {product.rival}"
    rows = [
        ("plain", numbers.get(f"plain_{suffix}"), "three loops, same compiler flags"),
        ("first", numbers[f"first_{suffix}"], "the author's own"),
        ("best", numbers[f"best_{suffix}"], against_first + against_rival),
        (product.rival, numbers[f"{rival}_{suffix}"], product.rival_remark),
    ]
    top = max(speed for _, speed, _ in rows if speed is not None)
    cells = max(4, width - 26 - max(len(remark) for _, _, remark in rows))
    return [
        shorten(
            f"{name:<9}{bar_text(speed / top, cells):<{cells}}"
            f"{three_digits(speed):>6} {unit}  {remark}",
            width,
        )
        for name, speed, remark in rows
        if speed is not None
    ]


# Neither tiled nor vectorized: what is left is three loops.
_PLAIN = """\
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %none = transform.tune.knob<"none"> options = [0] -> !transform.param<i64>
    %func = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.bufferization.eliminate_empty_tensors %func : !transform.any_op
    %module = transform.bufferization.one_shot_bufferize %root
      {bufferize_function_boundaries = true} : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""


def example_file(name: str) -> Path:
    """The example as it was installed with the package, or as it lies in a checkout."""
    package = Path(whet.__file__).resolve().parent
    for root in (package, package.parents[1]):
        path = root / "examples" / "matmul" / name
        if path.is_file():
            return path
    raise WhetError(f"examples/matmul/{name} is missing; reinstall whet")
