"""The C matrix product of `matmul.c`, checked against NumPy. `whet demo` tunes it.

whet tune examples/matmul/matmul.py:product
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np

import whet
from whet.targets.native.target import NativeTarget

# The first value of each is what one would write without tuning: a 4 × 4 tile of registers and
# blocks of 64³, which is a little faster than the plain loop that the compiler vectorises.
SPACE = whet.Space(
    {
        "VEC": [4, 8, 16],
        "NV": [1, 2, 3],
        "MR": [4, 6, 8, 12],
        "KC": [64, 256],
        "NC": [64, 768],
        "PACK": [0, 1],
        "UNROLL": ["", "-funroll-loops"],
    },
    constraints=[
        "MR * NV <= 24",  # the accumulators must fit the registers
        "(NC > 64) == (KC > 64)",  # cache blocks grow together
        "PACK == 0 or NC > 64",  # packing a small block is never earned back
        "UNROLL == '' or PACK == 1",
    ],
)


def product(n: int = 768) -> NativeTarget:
    """c = a · b for n × n matrices of floats."""

    def arguments() -> dict[str, Any]:
        rng = np.random.default_rng(0)
        a = rng.standard_normal((n, n), dtype=np.float32)
        b = rng.standard_normal((n, n), dtype=np.float32)
        return {"a": a, "b": b, "c": np.empty((n, n), np.float32), "n": n}

    def reference(a: Any, b: Any, c: Any, n: int) -> Any:
        return a @ b

    return whet.native(
        "matmul.c",
        SPACE,
        flags=["UNROLL"],
        function="matmul",
        args=arguments,
        outputs=["c"],
        reference=reference,
        rtol=1e-3,
        atol=1e-3,
        key={"n": n, "dtype": "float32"},
    )


_PLAIN = """
void matmul(const float *a, const float *b, float *c, int n)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            c[i * n + j] = 0;
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
}
"""


def plain(n: int = 768) -> NativeTarget:
    """The textbook loop in its best order, left to the compiler: what the first config is up to."""
    tuned = product(n)
    return whet.native(
        _PLAIN,
        whet.Space([{"opt": "-O3"}]),
        flags=["opt"],
        function="matmul",
        name="matmul-plain",
        args=tuned.arguments,
        outputs=["c"],
        reference=tuned.reference,
        rtol=tuned.rtol,
        atol=tuned.atol,
        key={"n": n, "dtype": "float32"},
    )


_NUMPY = """
import sys, time
import numpy as np
n = int(sys.argv[1])
rng = np.random.default_rng(0)
a = rng.standard_normal((n, n), dtype=np.float32)
b = rng.standard_normal((n, n), dtype=np.float32)
c = a @ b
times = []
for _ in range(15):
    start = time.process_time()
    np.matmul(a, b, out=c)
    times.append(time.process_time() - start)
print(sorted(times)[len(times) // 2])
"""

_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


def numpy_seconds(n: int) -> float:
    """NumPy's own product on one thread, in a fresh process: threads are set at its start. By its
    CPU time, as kernels are timed that never wait, so that a busy machine is unfair to neither."""
    done = subprocess.run(
        [sys.executable, "-c", _NUMPY, str(n)],
        env={**os.environ, **_ONE_THREAD},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
