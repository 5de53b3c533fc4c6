"""A fingerprint follows what the code does, not how it looks or where it stands."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import Any

import numpy as np
import pytest

import whet
from whet.targets.fingerprint import _text, digest, of_c_source, of_callable, source_of


def made(tmp_path, name, source):
    """A function from a file of its own, since the source is read from there."""
    path = tmp_path / f"{name}.py"
    path.write_text(textwrap.dedent(source))
    space = {"__name__": "kernels"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    import linecache

    linecache.checkcache()
    return space["f"]


def test_comments_docstrings_and_place_do_not_count(tmp_path):
    one = made(tmp_path, "one", "def f(a):\n    return a + 1\n")
    two = made(
        tmp_path,
        "two",
        """
        # moved, and explained

        def f(a):
            '''Adds one.'''
            return a + 1  # one
        """,
    )
    assert of_callable(one) == of_callable(two)


def test_a_changed_body_counts(tmp_path):
    one = made(tmp_path, "one", "def f(a):\n    return a + 1\n")
    two = made(tmp_path, "two", "def f(a):\n    return a + 2\n")
    assert of_callable(one) != of_callable(two)


def test_a_changed_helper_counts(tmp_path):
    source = "def g(a):\n    return a {}\ndef f(a):\n    return g(a)\n"
    one, two = (made(tmp_path, n, source.format(n)) for n in ("+ 1", "* 2"))
    assert of_callable(one) != of_callable(two)


def test_a_changed_constant_counts(tmp_path):
    source = "N = {}\ndef f(a):\n    return a + N\n"
    assert of_callable(made(tmp_path, "a", source.format(1))) != of_callable(
        made(tmp_path, "b", source.format(2))
    )


def test_captured_values_count_and_arrays_do_not():
    def maker(n, x):
        def f(a):
            return a + n + x.sum()

        return f

    ones, twos = np.ones(3), np.full(3, 2.0)
    assert of_callable(maker(1, ones)) == of_callable(maker(1, twos))
    assert of_callable(maker(1, ones)) != of_callable(maker(2, ones))


def test_recursion_partials_builtins_methods_and_callable_objects_work():
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    class Adder:
        def __call__(self, a):
            return a + 1

        def method(self, a):
            return a + 2

    kinds = [fact, partial(fact, 3), partial(fact, 4), len, Adder(), Adder().method, np.sum]
    assert len({of_callable(kind) for kind in kinds}) == len(kinds)
    assert of_callable(partial(fact, 3)) == of_callable(partial(fact, 3))


def test_local_headers_count_also_those_of_headers(tmp_path):
    (tmp_path / "a.h").write_text('#include "b.h"\n')
    (tmp_path / "b.h").write_text("#define N 1\n")
    text = '#include "a.h"\n#include <math.h>\n'
    before = of_c_source(text, tmp_path)
    (tmp_path / "b.h").write_text("#define N 2\n")
    assert of_c_source(text, tmp_path) != before


def test_the_boundaries_of_parts_count():
    assert digest("ab", "c") != digest("a", "bc")


SCALE = 3


def make(M: int, N: int = 8, **options: Any) -> Any:  # noqa: N803 - sizes are capitals by custom
    def run(block: int) -> int:
        return M * N // block

    return whet.function(run, {"block": [1, 2]}, **options)


def scaled(block: int) -> int:
    return SCALE * block


def indirectly(block: int) -> int:
    return scaled(block)


def fingerprint(target: Any) -> str:
    return str(target.workload().fingerprint)


def test_a_captured_value_that_the_key_claims_splits_nothing() -> None:
    made = [make(M, key={"M": M, "N": 8}).workload() for M in (256, 512, 1024)]
    assert len({one.fingerprint for one in made}) == 1
    assert len({one.id for one in made}) == 3


def test_a_captured_value_that_the_key_does_not_claim_makes_another_source() -> None:
    assert fingerprint(make(256, key={"N": 8})) != fingerprint(make(512, key={"N": 8}))


def test_a_global_may_be_claimed_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for value in (3, 4):
        monkeypatch.setitem(globals(), "SCALE", value)
        target = whet.function(indirectly, {"block": [1]}, key={"SCALE": value})
        seen.add(fingerprint(target))
    assert len(seen) == 1


def test_keywords_of_a_partial_may_be_claimed() -> None:
    def run(block: int, M: int) -> int:  # noqa: N803
        return M // block

    made = [
        whet.function(partial(run, M=M), {"block": [1]}, key={"M": M}, name="run") for M in (4, 8)
    ]
    assert fingerprint(made[0]) == fingerprint(made[1])


def test_a_key_with_another_value_claims_nothing() -> None:
    disagreeing = make(512, key={"M": 256, "N": 8})
    assert fingerprint(disagreeing) != fingerprint(make(512, key={"M": 512, "N": 8}))
    assert disagreeing.workload().origin.captured == {"M": "512"}


def test_true_is_not_one() -> None:
    assert fingerprint(make(1, key={"M": True})) != fingerprint(make(1, key={"M": 1}))


def test_a_bucket_claims_every_value_in_it() -> None:
    made = [make(M, key={"M": M}, buckets={"M": "pow2"}).workload() for M in (300, 500)]
    assert made[0].id == made[1].id


def test_a_key_that_was_read_off_the_arguments_claims_nothing() -> None:
    def run(block: int, n: int) -> int:
        return scaled(block) + n

    given = whet.function(run, {"block": [1]}, kwargs={"n": 4})
    assert given.workload().fingerprint == of_callable(run)


def test_fingerprints_are_those_of_before_where_nothing_is_claimed() -> None:
    """Text and captured values in this order is what results of whet 0.1 are kept under."""
    assert of_callable(scaled) == digest(_text(scaled), "SCALE=3")
    assert of_callable(indirectly) == digest(_text(indirectly), _text(scaled), "SCALE=3")
    assert fingerprint(make(256, key={"X": 1})) == digest(_text(make(256).fn), "M=256", "N=8")


def test_the_origin_tells_code_from_what_it_captured() -> None:
    one, other = source_of(make(256).fn).origin, source_of(make(512).fn).origin
    assert one.code == other.code
    assert (one.captured["M"], other.captured["M"]) == ("256", "512")


def test_two_captured_values_of_one_name_are_both_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def outer() -> Any:
        SCALE = 7  # noqa: N806

        def run(block: int) -> int:
            return SCALE * scaled(block)

        return run

    captured = source_of(outer()).origin.captured
    assert captured == {"SCALE": "7", "scaled.SCALE": "3"}


def test_a_long_value_is_cut_and_still_told_apart() -> None:
    def uses(values: tuple[int, ...]) -> Any:
        return lambda: values

    one, other = (source_of(uses((*range(200), last))).origin.captured["values"] for last in (1, 2))
    assert one != other
    assert len(one) < 80


C = """
#define M {0}
void scale(float *x) {{ for (int i = 0; i < M; i++) x[i] *= BM; }}
"""


def native(M: int, **options: Any) -> Any:  # noqa: N803
    x = np.ones(4, np.float32)
    return whet.native(C.format(M), {"BM": [1]}, function="scale", args={"x": x}, **options)


def test_a_define_that_the_key_claims_splits_nothing() -> None:
    assert fingerprint(native(4, key={"M": 4})) == fingerprint(native(8, key={"M": 8}))
    assert fingerprint(native(4, key={"n": 1})) != fingerprint(native(8, key={"n": 1}))
    assert fingerprint(native(4, key={"M": 8})) != fingerprint(native(8, key={"M": 8}))


def test_a_macro_among_the_options_may_be_claimed() -> None:
    def made(size: int, key: str) -> Any:
        options = ("-O2", f"-DN={size}")
        return native(4, key={key: size}, options=options).workload()

    assert made(16, "N").fingerprint == made(32, "N").fingerprint
    assert made(16, "n").fingerprint != made(32, "n").fingerprint
    assert made(16, "n").origin.captured == {"M": "4", "N": "16"}


def test_an_octal_number_is_not_claimed_as_a_decimal_one() -> None:
    assert native("010", key={"M": 10}).workload().origin.captured == {"M": "'010'"}


def test_native_fingerprints_are_those_of_before_where_nothing_is_claimed() -> None:
    target = native(4)
    options = ("-O3", "-march=native", "m")
    assert fingerprint(target) == digest(digest(target.text), "scale", *options)
