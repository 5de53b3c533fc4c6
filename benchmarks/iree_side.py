"""IREE's side of benchmarks/schedules.py, run by an interpreter that has IREE and no whet.

    python benchmarks/iree_side.py FOLDER FUNCTION

The folder has `payload.mlir`, a function on tensors, and `inputs.npz`, its arguments in order. What
it returns goes to `result.npy`. From then on every line on stdin is answered with the milliseconds
of one call, after another that is not timed: this process has slept since the last. One thread, and
IREE's own choices for this CPU.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np


def main() -> None:
    import iree.compiler as compiler  # type: ignore[import-not-found]
    import iree.runtime as runtime  # type: ignore[import-not-found]

    folder, name = Path(sys.argv[1]), sys.argv[2]
    binary = compiler.compile_str(
        (folder / "payload.mlir").read_text(),
        target_backends=["llvm-cpu"],
        extra_args=["--iree-llvmcpu-target-cpu=host"],
    )
    config = runtime.Config("local-sync")
    context = runtime.SystemContext(config=config)
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, binary))
    function = context.modules.module[name]
    with np.load(folder / "inputs.npz") as inputs:
        arrays = [runtime.asdevicearray(config.device, inputs[one]) for one in inputs.files]
    np.save(folder / "result.npy", function(*arrays).to_host())
    # Beneath IREE's Python wrapper, which takes some microseconds.
    arguments = runtime.VmVariantList(len(arrays))
    for array in arrays:
        arguments.push_ref(array._buffer_view)

    def call() -> float:
        results = runtime.VmVariantList(1)
        began = time.perf_counter()
        context.vm_context.invoke(function.vm_function, arguments, results)
        return 1e3 * (time.perf_counter() - began)

    print("ready", flush=True)
    for _ in sys.stdin:
        call()
        print(call(), flush=True)


if __name__ == "__main__":
    main()
