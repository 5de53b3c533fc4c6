"""A kernel's fingerprint follows what it does and what it calls, not where it stands."""

import os
import subprocess
import sys
from types import ModuleType

import pytest

pytest.importorskip("triton")

from triton_kernels import cell
from whet.targets.triton.source import fingerprint

KERNEL = """
import triton
import triton.language as tl

BLOCK = tl.constexpr(64)

@triton.jit
def twice(x):
    return x * 2

@triton.jit
def kernel(x_ptr, n, STEP: tl.constexpr = 4):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, twice(tl.load(x_ptr + offsets)) + STEP)
"""


def edited(before, after, source=KERNEL, **names):
    assert before in source
    return fingerprint(cell(source.replace(before, after), **names))


@pytest.fixture
def original():
    return fingerprint(cell(KERNEL))


ODDITIES = """
import triton
import triton.language as tl

class Sizes:
    BLOCK = 64

@triton.jit(do_not_specialize=["n"])
def kernel(x, n, y=None, *, MODE: tl.constexpr = "sum", SIZES: tl.constexpr = Sizes.BLOCK):
    'Says what it does.'
    a, (b, *c) = x, (n, n, n)
    "a remark"
    for i in tl.static_range(0, Sizes.BLOCK, step=-(-4)):
        a = a + (i if MODE == "sum" else -i) * helper(b, **{"k": None, "l": [1, 2.5, 1j, ...]})
    while not n < 0 < Sizes.BLOCK:
        n -= 1
    t: tl.constexpr = f"{MODE!r:>8} of {Sizes.BLOCK}"
    total = [j for j in (1, 2) if (k := j) and j != SIZES]
    tl.device_assert(x[1:2, ..., None] is not None or (lambda q=outer: q), t)
    del a
    return total[-1] @ x.T.to(tl.float32), (y.real for y in c)

def helper(b, k=0, l=()):
    return b
"""


def test_fingerprints_are_those_of_earlier_versions(original):
    """Stores and bundles depend on them. Should one have to change, every stored result is lost."""
    assert original == "8ff7ca9a2ba393895b0d27a46b8612d2"
    assert fingerprint(cell(ODDITIES, outer=3)) == "529291c872df26d686f162ba9c1c7960"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("BLOCK)\n", "BLOCK)  # in one go\n\n"),
        ("import triton\n", "# A licence.\n\n\nimport triton\n"),
        ("    offsets =", '    """Doubles."""\n    offsets ='),
        ("    return x * 2", '    "Doubles each."\n    return x * 2'),
        ("tl.arange(0, BLOCK)", "tl.arange(\n        0,\n        BLOCK,\n    )"),
        ("BLOCK =", "OTHER = tl.constexpr(1)\nBLOCK ="),  # an unused global
        ("BLOCK =", "offsets, n = 3, 4\nBLOCK ="),  # one that shares its name with a local
    ],
)
def test_what_changes_nothing_does_not_count(original, before, after):
    assert edited(before, after) == original


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("+ STEP", "- STEP"),
        ("x * 2", "x * 3"),
        ("x * 2", "kernel(x, x)"),  # kernels may call each other
        ("constexpr(64)", "constexpr(128)"),
        ("jit\ndef twice", "jit(noinline=True)\ndef twice"),
        ("jit\ndef kernel", "jit(do_not_specialize=['n'])\ndef kernel"),
    ],
)
def test_the_body_what_it_calls_and_uses_and_the_decorator_count(original, before, after):
    assert edited(before, after) not in ("", original)


def test_a_kernel_called_by_a_called_kernel_counts():
    deeper = KERNEL.replace("x * 2", "thrice(x)")
    helper = "@triton.jit\ndef thrice(x):\n    return x * {}\n"
    one, other = (fingerprint(cell(deeper + helper.format(factor))) for factor in (3, 4))
    assert one != other


def test_a_default_counts_by_its_value():
    source = KERNEL.replace("constexpr = 4", "constexpr = FOUR")
    assert fingerprint(cell(source, FOUR=4)) != fingerprint(cell(source, FOUR=5))


def test_the_module_does_not_count(original, tmp_path, monkeypatch):
    (tmp_path / "some_kernels.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    import some_kernels

    assert fingerprint(some_kernels.kernel) == original


def test_helpers_and_values_of_a_module_count():
    source = KERNEL.replace("twice(tl", "helpers.f(tl").replace("STEP)", "helpers.STEP)")

    def with_helpers(body, step):
        helpers = ModuleType("helpers")
        helper = f"import triton\n@triton.jit\ndef f(x):\n    return {body}\n"
        helpers.f, helpers.STEP = cell(helper, "f"), step
        return fingerprint(cell(source, helpers=helpers))

    assert with_helpers("x", 1) == with_helpers("x", 1)
    assert with_helpers("x", 1) != with_helpers("x + 1", 1)
    assert with_helpers("x", 1) != with_helpers("x", 2)


CLOSURE = """
import triton
import triton.language as tl

def made(block, factor):
    FACTOR = tl.constexpr(factor)

    @triton.jit
    def scaled(x):
        return x * FACTOR

    @triton.jit
    def kernel(x_ptr):
        offsets = tl.arange(0, block)
        tl.store(x_ptr + offsets, scaled(tl.load(x_ptr + offsets)))

    return kernel
"""


def test_captured_values_and_helpers_count():
    made = cell(CLOSURE, "made")
    same, again, other_value, other_helper = (
        fingerprint(made(*values)) for values in ((64, 2), (64, 2), (32, 2), (64, 3))
    )
    assert same == again
    assert len({same, other_value, other_helper}) == 3


def test_a_name_that_is_captured_later_does_not_hurt():
    source = """
    import triton
    def made():
        @triton.jit
        def kernel(x_ptr):
            helper(x_ptr)
        before = fingerprint(kernel)
        @triton.jit
        def helper(x_ptr):
            pass
        return before, fingerprint(kernel)
    """
    before, after = cell(source, "made", fingerprint=fingerprint)()
    assert before != after


def test_compile_time_functions_count():
    source = KERNEL.replace("BLOCK)", "rounded(60))") + (
        "\n@triton.constexpr_function\ndef rounded(n):\n    return plain(n)\n"
        "def plain(n):\n    return n + 4\n"
    )
    assert edited("n + 4", "n + 5 - 1", source) != fingerprint(cell(source))


def test_aggregates_count_with_their_methods():
    source = (
        KERNEL.replace("+ STEP", "+ Pair(1, 2).total()")
        + """
from triton.language.core import _aggregate as aggregate
@aggregate
class Pair:
    a: tl.constexpr
    b: tl.constexpr

    def __init__(self, a, b):
        self.a = tl.constexpr(a)
        self.b = tl.constexpr(b)

    @triton.jit
    def total(self):
        return self.a + self.b
"""
    )
    before = fingerprint(cell(source))
    assert before == fingerprint(cell("\n" + source))
    assert edited("self.a + self.b", "self.a - self.b", source) != before
    assert edited("tl.constexpr(b)", "tl.constexpr(b + 1)", source) != before


TUNED = KERNEL.replace(
    "@triton.jit\ndef kernel",
    '@triton.autotune([triton.Config({"STEP": 4})], key=["n"])\n'
    '@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})\n'
    "@triton.jit\ndef kernel",
)


@pytest.fixture
def without_driver(monkeypatch):
    """Triton's autotuner asks the driver for a benchmark when it is made."""
    from triton.runtime import driver

    class Driver:
        def get_benchmarker(self):
            return None

    monkeypatch.setattr(driver, "_active", Driver(), raising=False)


@pytest.mark.usefixtures("without_driver")
def test_the_configs_of_an_autotuner_do_not_count():
    assert edited('{"STEP": 4}', '{"STEP": 8}', TUNED) == fingerprint(cell(TUNED))


@pytest.mark.usefixtures("without_driver")
def test_heuristics_count():
    assert edited("% 2", "% 4", TUNED) != fingerprint(cell(TUNED))
    assert edited("BLOCK =", "\n\nBLOCK =", TUNED) == fingerprint(cell(TUNED))


@pytest.mark.medium
def test_a_kernel_of_a_script_has_the_same_fingerprint_in_every_process(tmp_path, original):
    script = tmp_path / "script.py"
    asks = "from whet.targets.triton.source import fingerprint\nprint(fingerprint(kernel))\n"
    script.write_text(KERNEL + asks)
    for seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        run = subprocess.run(
            [sys.executable, script], env=environment, capture_output=True, text=True, check=True
        )
        assert run.stdout.strip() == original


FILLING = """
KNOWN = {"size": 4}
LATEST = [None]

def remembered(x):
    if x not in KNOWN:
        KNOWN[x] = x
    LATEST[0] = x
    return KNOWN[x]
"""


def test_how_full_a_table_is_that_the_function_fills_does_not_count():
    function = cell(FILLING, "remembered")
    fresh = fingerprint(function)
    function("a"), function("b")
    assert fingerprint(function) == fresh


def test_a_table_that_the_function_only_reads_counts():
    reading = FILLING.replace("        KNOWN[x] = x\n", "        return x\n")
    other = reading.replace('"size": 4', '"size": 8')
    assert fingerprint(cell(reading, "remembered")) != fingerprint(cell(other, "remembered"))
