"""`whet export`: results in the form that others read."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.export_options import (
    DeviceOption,
    ForceOption,
    KernelArgument,
    WhereOption,
    selected,
    write_all,
)
from whet.cli.arguments.options import StoreOption
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from whet.core.workload import Workload
    from whet.targets.triton.offline.kernel import Kernel

ABOUT = "Export results for vLLM, SGLang, Triton, or as Python."
EXAMPLES = """\b
Examples:
  whet export vllm-moe fused_moe_kernel --extra E=8 --out configs
  whet export triton kernel.py:matmul
  whet export python matmul --out pick_config.py
"""
TRITON_EXAMPLES = """\b
Examples:
  whet export triton kernel.py:matmul               into Triton's own cache
  whet export triton kernel.py:matmul --out cache   for TRITON_CACHE_DIR=cache
"""
PYTHON_EXAMPLES = """\b
Examples:
  whet export python matmul                         to stdout
  whet export python matmul --max-configs 4 --out pick_config.py
  whet export python matmul --device "NVIDIA H200" --device "NVIDIA A100"
"""


def triton(
    tunable: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:KERNEL",
            help="A kernel decorated with whet.autotune(…).",
            show_default=False,
        ),
    ],
    where: WhereOption = None,
    device: DeviceOption = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="Cache directory (default: Triton's own)."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write Triton's own autotuning cache file.

    Stock Triton reads it with cache_results=True or TRITON_CACHE_AUTOTUNING=1 and skips
    benchmarking. Use the same Triton version as on the target machine; no GPU is needed.
    """
    from whet.cli.arguments.locate import locate
    from whet.cli.arguments.reading import open_known

    kernel: Any = locate(tunable)
    if not hasattr(kernel, "tuner"):
        raise UsageError(f"{tunable} is not a Triton kernel; name one decorated with whet.autotune")
    from triton import knobs

    from whet.interop import triton_cache
    from whet.targets.triton.keys import agrees, claimed_key
    from whet.targets.triton.policy import apply_policy
    from whet.targets.triton.source import source_of

    with open_known(store) as opened:
        apply_policy(kernel.tuner)
        source = source_of(kernel.tuner)
        claimed = claimed_key(source, kernel.tuner.whet_buckets)
        every = selected(opened, kernel.name, device, where, source.fingerprint).picks
        picks = [pick for pick in every if agrees(pick[0].key, claimed)] or every
        known = [
            triton_cache.Timed(
                workload, best, {trial.config.id: trial for trial in opened.trials(workload.id)}
            )
            for workload, best in picks
        ]
    for one in known:
        _refuse_other_source(kernel, one.workload, source.fingerprint, claimed)
    folder = Path(out or knobs.cache.dir)
    for path in triton_cache.write(kernel.tuner, known, folder, _pruned(kernel)):
        print(path)


def _refuse_other_source(
    kernel: Kernel, workload: Workload, fingerprint: str, claimed: Mapping[str, Any]
) -> None:
    import triton

    from whet.targets.triton.keys import agrees

    if workload.fingerprint != fingerprint or not agrees(workload.key, claimed):
        raise UsageError(
            f"{workload} was tuned with a different source of {kernel.name} than the one in "
            "the file; tune it again"
        )
    version = workload.toolchain.get("triton")
    if version != triton.__version__:
        raise UsageError(
            f"{workload} was tuned with Triton {version}, but this is {triton.__version__}, "
            "which would ignore the file; export with the version it was tuned with"
        )


def _pruned(kernel: Kernel) -> Callable[[Workload], Sequence[Any]]:
    """The configs that Triton's key names: those that are left for a call."""
    from whet.targets.triton.offline.kernel import check_key, make_inputs

    tuner = kernel.tuner

    def configs(workload: Workload) -> Sequence[Any]:
        if not tuner.early_config_prune and not tuner.perf_model:
            return list(tuner.configs)
        if tuner.whet_inputs is None:
            raise UsageError(
                f"kernel '{kernel.name}' prunes its configs by its arguments; add "
                "whet.autotune(…, inputs=…) so that the remaining configs are known"
            )
        key = {name: value for name, value in workload.key.items() if name in tuner.keys}
        check_key(kernel, key)
        _, args, keywords = make_inputs(kernel, key)
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        try:
            return list(tuner.prune_configs(keywords))
        finally:
            tuner.nargs = None

    return configs


def python(
    name: KernelArgument,
    max_configs: Annotated[
        int | None,
        typer.Option(
            "--max-configs", metavar="N", min=1, help="Use at most N configs (default: 8)."
        ),
    ] = None,
    max_leaves: Annotated[
        int,
        typer.Option(
            "--max-leaves", metavar="N", min=1, help="Maximum number of leaves of a tree."
        ),
    ] = 32,
    style: Annotated[
        str,
        typer.Option(
            "--style",
            metavar="auto|table|tree",
            help="auto uses a table for few keys, else a tree.",
        ),
    ] = "auto",
    function: Annotated[
        str, typer.Option("--function", metavar="NAME", help="Name of the function.")
    ] = "pick",
    where: WhereOption = None,
    device: DeviceOption = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE.py", help="Output file (default: stdout).")
    ] = None,
    force: ForceOption = False,
    store: StoreOption = None,
) -> None:
    """Write a Python function that picks the config.

    It needs nothing but Python, so a library can commit it in place of its list of configs:
    pick(M, N, K) returns a dict. whet selects a few configs that serve all known keys well, and
    writes a table or a small decision tree over the key's numbers.
    """
    from whet.cli.arguments.reading import open_known
    from whet.cli.terminal.output import count_text
    from whet.interop.files import OutFile
    from whet.interop.python_source import python_source
    from whet.interop.selecting import MeasuredWorkload

    if style not in ("auto", "table", "tree"):
        raise UsageError(f"--style '{style}' is not valid; use auto, table or tree")
    with open_known(store) as opened:
        measured = [
            MeasuredWorkload(workload, best, opened.trials(workload.id))
            for workload, best in selected(opened, name, device, where).picks
        ]
    kernels = sorted({one.workload.kernel for one in measured})
    if len(kernels) > 1:
        raise UsageError(f"'{name}' matches {' and '.join(kernels)}; name one kernel")
    source, decision = python_source(
        measured,
        max_configs=max_configs,
        max_leaves=max_leaves,
        style=style,  # type: ignore[arg-type]
        function=function,
    )
    if out is None:
        sys.stdout.write(source)
        return
    path = Path(out)
    write_all([OutFile(PurePosixPath(path.name), source)], path.parent, force)
    score = "" if decision.score is None else f", {decision.score:.1%} of the best known"
    what = count_text(len(decision.configs), "config")
    print(f"{what} for {count_text(decision.keys, 'key')}{score}", file=sys.stderr)
