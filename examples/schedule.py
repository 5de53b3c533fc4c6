"""A matrix product with bias and max(x, 0), scheduled by MLIR's transform dialect.

pip install 'whet[mlir]'
whet tune examples/schedule.py:product --budget 30s
whet schedule show examples/schedule.py:product --diff 1 12
"""

import whet
from whet.targets.schedule.payloads import layernorm, matmul_bias_relu

product = whet.schedule(matmul_bias_relu(512, 512, 512))
norm = whet.schedule(layernorm(4096, 1024), threads=None)

if __name__ == "__main__":
    print(whet.tune(norm, budget="20s").config)
