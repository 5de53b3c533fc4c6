"""A payload of whet's schedules, run by IREE in a process of its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from whet.targets.schedule.payloads import Payload
from whet.targets.schedule.target import ScheduleTarget


@contextmanager
def iree_call(python: str, target: ScheduleTarget) -> Iterator[Callable[[], float]]:
    """One call by IREE, in a process that carries another MLIR; it tells its milliseconds."""
    payload = target.payload
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "payload.mlir").write_text(tensor_function(payload))
        inputs = {one: array for one, array in target.args.items() if one != payload.outputs[0]}
        np.savez(Path(folder, "inputs.npz"), **inputs)
        side = subprocess.Popen(
            [python, str(Path(__file__).with_name("iree_side.py")), folder, payload.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert side.stdin is not None
        assert side.stdout is not None
        asking, told = side.stdin, side.stdout
        if told.readline().strip() != "ready":
            raise SystemExit(f"{python} cannot run {payload.name} with IREE: exit {side.wait()}")
        found = np.load(Path(folder, "result.npy"))
        if not np.allclose(
            found, (target.expected or {})[payload.outputs[0]], target.rtol, target.atol
        ):
            raise SystemExit(f"IREE's {payload.name} is wrong")

        def call() -> float:
            print(file=asking, flush=True)
            return float(told.readline())

        yield call
        asking.close()
        side.wait()


def tensor_function(payload: Payload) -> str:
    """The payload with tensors in place of memrefs, and its result returned."""
    lines = []
    shape = "x".join(map(str, payload.shapes[payload.outputs[0]]))
    for line in payload.text.splitlines():
        if "bufferization.to_tensor" in line:
            continue
        if "materialize_in_destination" in line:
            lines.append(f"    return %result : tensor<{shape}xf32>")
        elif line.strip() != "return":
            lines.append(line)
    text = "\n".join(lines).replace(f", %{payload.outputs[0]}_m: memref<{shape}xf32>)", ")", 1)
    return text.replace("_m: memref", ": tensor").replace(") {", f") -> tensor<{shape}xf32> {{", 1)
