"""A matrix product with bias and max(x, 0), scheduled by MLIR's transform dialect.

pip install '.[mlir]'    # in a clone of whet
whet tune examples/schedule.py:product --budget 30s
whet schedule examples/schedule.py:product --diff 1 12
whet schedule examples/schedule.py:tiled :fused :vectorized
whet schedule examples/schedule.py:gpu
"""

import whet
from whet.targets.schedule.frontend import KnobHandle, ScheduleBuilder
from whet.targets.schedule.payloads import layernorm, matmul_bias_relu

product = whet.schedule(matmul_bias_relu(512, 512, 512))
norm = whet.schedule(layernorm(4096, 1024), threads=None)


def add_steps(s: ScheduleBuilder, ti: KnobHandle, fuse: bool, vectorize: bool) -> None:
    """Tiles of ti by 32, with the product computed inside those of the last operation or before."""
    last, product, fill = (
        s.match("linalg.generic"),
        s.match("linalg.matmul"),
        s.match("linalg.fill"),
    )
    tile = s.tile(last, [ti, 32])
    if fuse:
        inner = s.fuse(product, into=tile.loops[1])
        s.fuse(fill, into=inner.loops[0])
    else:
        inner = s.tile(product, [ti, 32])
    s.tile(inner.op, [0, 0, 4])
    if vectorize:
        s.vectorize()
    s.bufferize()
    s.lower()


def one_way(fuse: bool, vectorize: bool) -> ScheduleBuilder:
    s = ScheduleBuilder()
    add_steps(s, s.knob("ti", [8, 4]), fuse, vectorize)
    return s


def three_ways() -> ScheduleBuilder:
    """All three in one script, as a decision like any other."""
    s = ScheduleBuilder()
    ti = s.knob("ti", [8, 4])
    s.choose(
        "way",
        {
            "tile": lambda: add_steps(s, ti, fuse=False, vectorize=False),
            "tile+fuse": lambda: add_steps(s, ti, fuse=True, vectorize=False),
            "tile+fuse+vectorize": lambda: add_steps(s, ti, fuse=True, vectorize=True),
        },
    )
    return s


small = matmul_bias_relu(256, 256, 256)
tiled = whet.schedule(small, one_way(fuse=False, vectorize=False), name="tiled")
fused = whet.schedule(small, one_way(fuse=True, vectorize=False), name="fused")
vectorized = whet.schedule(small, one_way(fuse=True, vectorize=True), name="vectorized")
three = whet.schedule(small, three_ways(), name="three")

# The five stages of a GPU pipeline, from workgroups to blocks and threads: to look at, not to run.
gpu = whet.schedule(matmul_bias_relu(256, 256, 64), "schedule_gpu.mlir", name="gpu")
