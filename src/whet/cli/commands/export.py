"""`whet export`: results in the form that others read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.locate import locate
from whet.cli.arguments.options import NAMED, StoreOption, argument, option, typed_value
from whet.cli.arguments.reading import chosen, open_known
from whet.cli.terminal.help import refuse_others
from whet.cli.terminal.output import count_text, say
from whet.core.errors import UsageError, did_you_mean
from whet.core.frozen import FrozenMap
from whet.core.plugins import plugin_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whet.core.trial import Trial
    from whet.core.workload import Workload
    from whet.interop import MeasuredWorkload, Selection
    from whet.interop.files import OutFile
    from whet.interop.serving import Layout
    from whet.store import StoreReader
    from whet.targets.triton.offline.kernel import Kernel

SERVING = "vllm-moe, vllm-fp8, sglang-moe, sglang-fp8"
FP8 = "vllm-fp8, sglang-fp8"
MOE = "vllm-moe, sglang-moe"
_SIZES = "MNKE"


def export(
    context: typer.Context,
    kind: Annotated[str, argument("FORMAT", "The format; see below.")],
    name: Annotated[str, argument("NAME|ID", f"{NAMED}. For triton: FILE.py:KERNEL.")],
    where: Annotated[
        list[str] | None, option("--where NAME=VALUE", "Only keys with this value (repeatable).")
    ] = None,
    device: Annotated[
        list[str] | None,
        option("--device NAME", "Only results for this device, as shown by 'whet best'."),
    ] = None,
    out: Annotated[
        str | None,
        option(
            "--out PATH", "The directory to write to; for python the file (default: see below)."
        ),
    ] = None,
    force: Annotated[bool, option("--force", "Overwrite files that differ.")] = False,
    store: StoreOption = None,
    m_key: Annotated[
        str | None,
        option("--m-key NAME", "The key's name for M, the number of tokens (default: M).", SERVING),
    ] = None,
    n_key: Annotated[
        str | None, option("--n-key NAME", "The key's name for N (default: N).", SERVING)
    ] = None,
    extra: Annotated[
        list[str] | None,
        option(
            "--extra NAME=NUMBER",
            "A size or parameter missing from the results: E=8, GROUP_SIZE_M=1.",
            SERVING,
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        option("--param THEIRS=YOURS", "Rename a parameter: BLOCK_SIZE_M=TILE_M.", SERVING),
    ] = None,
    block_shape: Annotated[
        str | None, option("--block-shape N,K", "Block shape of a block-quantised weight.", SERVING)
    ] = None,
    k_key: Annotated[
        str | None, option("--k-key NAME", "The key's name for K (default: K).", FP8)
    ] = None,
    e_key: Annotated[
        str | None,
        option("--e-key NAME", "The key's name for E, the number of experts (default: E).", MOE),
    ] = None,
    dtype: Annotated[
        str | None,
        option("--dtype NAME", "Data type as the engine spells it: fp8_w8a8, int8_w8a16.", MOE),
    ] = None,
    triton: Annotated[
        str | None,
        option(
            "--triton VERSION", "The Triton version used for tuning (default: from the store).", MOE
        ),
    ] = None,
    per_channel_quant: Annotated[
        bool, option("--per-channel-quant", "For weights quantised per channel.", "sglang-moe")
    ] = False,
    down: Annotated[
        bool,
        option("--down", "For the second (down) product, which has its own file.", "sglang-moe"),
    ] = False,
    max_configs: Annotated[
        int | None,
        option("--max-configs N", "Use at most N configs (default: 8).", min=1, panel="python"),
    ] = None,
    max_leaves: Annotated[
        int, option("--max-leaves N", "Maximum number of leaves of a tree.", min=1, panel="python")
    ] = 32,
    style: Annotated[
        str,
        option("--style auto|table|tree", "auto uses a table for few keys, else a tree.", "python"),
    ] = "auto",
    function: Annotated[str, option("--function NAME", "Name of the function.", "python")] = "pick",
) -> None:
    """Export results for vLLM, SGLang, Triton, or as Python.

    Examples:
      whet export vllm-moe fused_moe_kernel --extra E=8 --out configs
      whet export vllm-moe moe --m-key tokens --extra E=8 --extra N=14336
      whet export vllm-moe moe --dtype fp8_w8a8 --block-shape 128,128
      whet export vllm-fp8 block_fp8_gemm --where K=7168 --param BLOCK_SIZE_M=BM
      whet export sglang-moe fused_moe_kernel --down --triton 3.5.1 --out moe
      whet export triton kernel.py:matmul --out cache   for TRITON_CACHE_DIR=cache
      whet export python matmul --max-configs 4 --out pick_config.py
      whet export python matmul --device "NVIDIA H200" --device "NVIDIA A100"

    Formats:
      vllm-moe    files for vLLM's fused MoE kernel, one for each E and N, where N
                  is w2.shape[2]; by default in $VLLM_TUNED_CONFIG_FOLDER, where
                  vLLM finds them, or in the current directory
      vllm-fp8    files for vLLM's block fp8 GEMM, one for each N and K, by
                  default in the current directory; vLLM reads its own folder
                  quantization/utils/configs. Default block shape: 128,128
      sglang-moe  files for SGLang's fused MoE kernel, in configs/triton_VERSION
                  under --out, or under $SGLANG_MOE_CONFIG_DIR, where SGLang finds
                  them, or under the current directory
      sglang-fp8  files for SGLang's block fp8 GEMM, as vllm-fp8; SGLang reads its
                  own folder kernels/ops/quantization/configs
      triton      Triton's own autotuning cache file, by default in Triton's own
                  cache. Stock Triton reads it with cache_results=True or
                  TRITON_CACHE_AUTOTUNING=1 and skips benchmarking. Use the same
                  Triton version as on the target machine; no GPU is needed
      python      a Python function pick(M, N, K) that returns a dict, to stdout.
                  It needs nothing but Python, so a library can commit it in place
                  of its list of configs. whet selects a few configs that serve
                  all known keys well, and writes a table or a small decision tree
    and those of installed packages, by default in the current directory.
    """
    refuse_others(context, kind)
    if kind == "triton":
        _triton(name, where, device, out, store)
    elif kind == "python":
        _python(name, max_configs, max_leaves, style, function, where, device, out, force, store)
    elif kind in SERVING.split(", "):
        layout = _layout(
            {"M": m_key, "N": n_key, "K": k_key, "E": e_key},
            extra,
            param,
            dtype,
            block_shape,
            triton=triton,
            per_channel_quant=per_channel_quant,
            down=down,
        )
        _serving(kind, layout, name, device, where, out, force, store)
    else:
        _of_package(kind, name, device, where, out or ".", force, store)


def _serving(
    kind: str,
    layout: Layout,
    name: str,
    device: Sequence[str] | None,
    where: Sequence[str] | None,
    out: str | None,
    force: bool,
    store: str | None,
) -> None:
    """Configs for a serving engine to find."""
    from whet.interop import sglang, vllm

    formats: dict[str, tuple[Callable[..., list[OutFile]], str]] = {
        "vllm-moe": (vllm.moe_files, vllm.FOLDER_VARIABLE),
        "vllm-fp8": (vllm.fp8_files, ""),
        "sglang-moe": (sglang.moe_files, sglang.FOLDER_VARIABLE),
        "sglang-fp8": (partial(vllm.fp8_files, named=sglang.fp8_name), ""),
    }
    files, variable = formats[kind]
    with open_known(store) as opened:
        selection = selected(opened, name, device, where)
    folder = out or os.environ.get(variable) or "."
    write_all(files(selection.picks, layout), Path(folder), force)


def _of_package(
    kind: str,
    name: str,
    device: Sequence[str] | None,
    where: Sequence[str] | None,
    out: str,
    force: bool,
    store: str | None,
) -> None:
    """In a format of an installed package."""
    from whet.interop import package_writer

    write = package_writer(kind)
    if write is None:
        names = (*SERVING.split(", "), "triton", "python", *plugin_names("format"))
        raise UsageError(f"unknown export format '{kind}'{did_you_mean(kind, names)}")
    with open_known(store) as opened:
        picks = selected(opened, name, device, where).picks
        measured = _measured(opened, picks)
    write_all(write(measured), Path(out), force)


def _measured(
    opened: StoreReader, picks: Sequence[tuple[Workload, Trial]]
) -> list[MeasuredWorkload]:
    from whet.interop import MeasuredWorkload

    return [
        MeasuredWorkload(workload, best, opened.trials(workload.id)) for workload, best in picks
    ]


def _triton(
    tunable: str,
    where: Sequence[str] | None,
    device: Sequence[str] | None,
    out: str | None,
    store: str | None,
) -> None:
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


def _python(
    name: str,
    max_configs: int | None,
    max_leaves: int,
    style: str,
    function: str,
    where: Sequence[str] | None,
    device: Sequence[str] | None,
    out: str | None,
    force: bool,
    store: str | None,
) -> None:
    from whet.interop.files import OutFile
    from whet.interop.python_source import python_source

    if style not in ("auto", "table", "tree"):
        raise UsageError(f"--style '{style}' is not valid; use auto, table or tree")
    with open_known(store) as opened:
        measured = _measured(opened, selected(opened, name, device, where).picks)
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


def _layout(
    keys: dict[str, str | None],
    extra: Sequence[str] | None,
    param: Sequence[str] | None,
    dtype: str | None,
    block_shape: str | None,
    **more: Any,
) -> Layout:
    from whet.interop.serving import PARAMETERS, Layout

    fixed, parameters = pairs(extra, "--extra"), pairs(param, "--param")
    for typed, given, valid in (
        (fixed, "--extra", (*_SIZES, *PARAMETERS)),
        (parameters, "--param", PARAMETERS),
    ):
        for one in typed:
            if one not in valid:
                raise UsageError(f"{given} '{one}' is unknown{did_you_mean(one, valid)}")
    return Layout(
        keys=FrozenMap({size: name for size, name in keys.items() if name is not None}),
        fixed=FrozenMap(fixed),
        parameters=FrozenMap({theirs: str(yours) for theirs, yours in parameters.items()}),
        dtype=dtype,
        block_shape=None if block_shape is None else _shape(block_shape),
        **more,
    )


def _shape(text: str) -> tuple[int, int]:
    parts = [part.strip() for part in text.strip("[]").split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--block-shape '{text}' is not valid; use N,K, such as 128,128")
    return int(parts[0]), int(parts[1])


def pairs(texts: Iterable[str] | None, option: str) -> dict[str, Any]:
    """`["E=8", "dtype=fp16"]` is `{"E": 8, "dtype": "fp16"}`."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise UsageError(f"{option} '{text}' is not valid; use NAME=VALUE")
        if name in found:
            raise UsageError(f"{option} gives '{name}' twice")
        found[name] = typed_value(value)
    return found


def selected(
    store: StoreReader,
    name: str,
    devices: Sequence[str] | None,
    where: Sequence[str] | None,
    source: str | None = None,
) -> Selection:
    """What a file is made from, of the fingerprint `source` where there is such; notes go to
    stderr."""
    from whet.interop import select

    known = chosen(store, name)
    asked = pairs(where, "--where")
    selection = select(known, devices=devices or (), where=asked, source=source)
    for note in selection.notes:
        say(f"whet: note: {note}")
    return selection


def write_all(files: Iterable[OutFile], folder: Path, force: bool) -> None:
    """Prints where each is; one that would be lost stops it before anything is written."""
    from whet.interop.files import refuse_to_lose, write_out

    every = list(files)
    if not force:
        for file in every:
            refuse_to_lose(file, folder)
    for file in every:
        print(write_out(file, folder))
