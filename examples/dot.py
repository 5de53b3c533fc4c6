"""A C function: how many partial sums, and which compiler flags?

whet tune examples/dot.py:dot
"""

import numpy as np

import whet

SOURCE = """
void dot(const float *x, const float *y, float *out, int n)
{
    float sum[SUMS] = {0};
    for (int i = 0; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            sum[k] += x[i + k] * y[i + k];
    out[0] = 0;
    for (int k = 0; k < SUMS; k++)
        out[0] += sum[k];
    for (int i = n / SUMS * SUMS; i < n; i++)
        out[0] += x[i] * y[i];
}
"""


def arguments() -> dict[str, object]:
    rng = np.random.default_rng(0)
    n = 1 << 14
    x, y = rng.random(n, dtype=np.float32), rng.random(n, dtype=np.float32)
    return {"x": x, "y": y, "out": np.zeros(1, np.float32), "n": n}


def reference(x: np.ndarray, y: np.ndarray, out: np.ndarray, n: int) -> np.ndarray:
    return np.array([x.astype(np.float64) @ y.astype(np.float64)], np.float32)


dot = whet.native(
    SOURCE,
    whet.Space(
        {
            "SUMS": [1, 2, 4, 8, 16, 32, 64, 128],
            "opt": ["-O3", "-O2", "-O3 -funroll-loops", "-O3 -ffast-math"],
        },
        constraints=["SUMS <= 64 or opt != '-O2'"],
    ),
    flags=["opt"],
    function="dot",
    args=arguments,
    outputs=["out"],
    reference=reference,
)
