"""Small kernels, each with one way of using its pointers; compiled without a GPU."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import linecache
import textwrap
from itertools import count

import triton
import triton.language as tl

_cells = count()


def cell(source, name="kernel", **names):
    """Run as a notebook does: the source lies in `linecache`, under a name that is no file."""
    text = textwrap.dedent(source)
    filename = f"<cell {next(_cells)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space = {"__name__": "__main__", **names}
    exec(compile(text, filename, "exec"), space)
    return space[name]


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def add_in_place(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets))


@triton.jit
def accumulate_in_loop(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    for i in range(n):
        part = tl.sum(tl.load(x_ptr + i * BLOCK + tl.arange(0, BLOCK)))
        tl.store(total_ptr, tl.load(total_ptr) + part)


@triton.jit
def atomic_add(x_ptr, total_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(total_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def take_lock(lock_ptr, out_ptr):
    tl.store(out_ptr, tl.atomic_cas(lock_ptr, 0, 1))


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    a_tile = a_ptr + offsets[:, None] * K + offsets[None, :]
    b_tile = b_ptr + offsets[:, None] * K + offsets[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(0, K, BLOCK):
        total += tl.dot(tl.load(a_tile), tl.load(b_tile))
        a_tile += BLOCK
        b_tile += BLOCK * K
    tl.store(c_ptr + offsets[:, None] * K + offsets[None, :], total)


@triton.jit
def store_to_either(a_ptr, b_ptr, n):
    if n > 5:  # noqa: SIM108 - Triton turns this into a select
        chosen = a_ptr
    else:
        chosen = b_ptr
    tl.store(chosen, 1.0)


@triton.jit
def switch_in_loop(x_ptr, y_ptr, out_ptr, n):
    here = x_ptr
    total = 0.0
    for i in range(n):
        if i == 3:
            here = y_ptr
        else:
            here += 1
            total += tl.load(here)
    tl.store(out_ptr, total)


@triton.jit
def follow_links(links_ptr, out_ptr, n):
    here = links_ptr
    i = 0
    while i < n:
        here += tl.load(here)
        i += 1
    tl.store(here, 0)
    if n == 7:
        return
    tl.store(out_ptr, 1)


@triton.jit(noinline=True)
def put(to_ptr, value):
    tl.store(to_ptr, value)


@triton.jit(noinline=True)
def shifted(ptr, n):
    return ptr + n, n


@triton.jit
def store_in_helper(x_ptr, y_ptr, n):
    to_ptr, m = shifted(y_ptr, n)
    put(to_ptr, tl.load(x_ptr + m))


@triton.jit
def copy_by_descriptor(a_ptr, b_ptr, M, N, BLOCK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    b = tl.make_tensor_descriptor(b_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    b.store([0, 0], a.load([0, 0]))


@triton.jit
def reduce_by_descriptor(a_ptr, b_ptr, M, N, BLOCK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    b = tl.make_tensor_descriptor(b_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    b.atomic_add([0, 0], a.load([0, 0]))


@triton.jit
def increment_descriptor(tile, out_ptr):
    tile.store([0, 0], tile.load([0, 0]) + 1)
    tl.store(out_ptr, 1.0)


@triton.jit
def inline_assembly(x_ptr, out_ptr, n):
    value = tl.inline_asm_elementwise(
        "ld.global.b32 $0, [$1]; // $2",
        "=r,l,r",
        [x_ptr, n],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out_ptr, value)


@triton.jit
def store_to_loaded_address(table_ptr, x_ptr):
    tl.store(tl.load(table_ptr).to(tl.pointer_type(tl.float32)), tl.load(x_ptr))


@triton.jit
def load_from_loaded_address(table_ptr, out_ptr):
    tl.store(out_ptr, tl.load(tl.load(table_ptr).to(tl.pointer_type(tl.float32))))


def ttir_of(kernel, block=16, **signature):
    """The first stage of a compilation for sm_90; `block` where the kernel takes one."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    constants = {}
    if "BLOCK" in kernel.arg_names:
        signature["BLOCK"], constants["BLOCK"] = "constexpr", block
    source = ASTSource(kernel, signature, constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ttir"]
