"""The kernels that timers are compared on: products, reductions and attention, 3 µs to 1 ms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

GEMMS = (
    ((256, 256, 256), (64, 64, 32, 4, 4)),
    ((256, 256, 4096), (64, 64, 64, 4, 4)),
    ((512, 512, 1024), (64, 64, 64, 4, 4)),
    ((1024, 1024, 1024), (128, 64, 64, 4, 4)),
    ((4096, 256, 4096), (128, 64, 64, 4, 4)),
    ((2048, 2048, 2048), (128, 128, 64, 3, 8)),
    ((4096, 4096, 4096), (128, 256, 64, 3, 8)),
    ((8192, 4096, 4096), (128, 256, 64, 3, 8)),
)


def kernels() -> dict[str, tuple[str, Callable[[], Any]]]:
    """By name: the kernel's own name, as the profiler has it, and a launch."""
    import torch

    from attention_kernels import (
        attention_arguments,
        attention_grid,
        attention_inputs,
        attention_kernel,
    )
    from softmax_kernels import softmax_arguments, softmax_grid, softmax_inputs, softmax_kernel
    from triton_kernels import (
        matmul_arguments,
        matmul_grid,
        matmul_kernel,
        row_sum_kernel,
        scale_add_kernel,
    )

    torch.manual_seed(0)
    found: dict[str, tuple[str, Callable[[], Any]]] = {}

    def add(name: str, kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> None:
        launch = partial(kernel.run, *arguments, grid=grid, warmup=False, **constants)
        found[name] = (kernel.__name__, launch)

    for (m, n, k), (bm, bn, bk, stages, warps) in GEMMS:
        a, b = (
            torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((m, k), (k, n))
        )
        c = torch.empty((m, n), device="cuda", dtype=torch.float16)
        blocks = {"BLOCK_SIZE_M": bm, "BLOCK_SIZE_N": bn, "BLOCK_SIZE_K": bk, "GROUP_SIZE_M": 8}
        options = {"num_stages": stages, "num_warps": warps}
        arguments = matmul_arguments(a, b, c)
        add(f"gemm {m}×{n}×{k}", matmul_kernel, matmul_grid(m, n), *arguments, **blocks, **options)
    for size in (2**20, 2**23, 2**26):
        x, y = (torch.randn(size, device="cuda") for _ in range(2))
        add(f"scale-add 2^{size.bit_length() - 1}", scale_add_kernel, (size // 1024,), x, y, size,
            BLOCK=1024)  # fmt: skip
    for rows, columns in ((2048, 1024), (8192, 8192)):
        x = torch.randn((rows, columns), device="cuda")
        total = torch.empty(rows, device="cuda")
        add(f"row sum {rows}×{columns}", row_sum_kernel, (rows,), x, total, columns, BLOCK=1024)
    for rows, columns in ((1024, 1024), (4096, 4096), (16384, 8192)):
        x, y = softmax_inputs(rows, columns)
        constants = {"ROWS": 1, "CHUNK": columns, "STAGES": 1, "num_warps": 8}
        arguments = softmax_arguments(x, y)
        add(f"softmax {rows}×{columns}", softmax_kernel, softmax_grid(rows), *arguments,
            **constants)  # fmt: skip
    for heads, sequence in ((16, 512), (16, 2048), (64, 4096)):
        arguments = attention_arguments(*attention_inputs(heads, sequence))
        constants = {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3}
        add(f"attention {heads}×{sequence}", attention_kernel, attention_grid(heads, sequence),
            *arguments, **constants)  # fmt: skip
    return found
