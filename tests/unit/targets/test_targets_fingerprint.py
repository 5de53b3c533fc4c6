"""A fingerprint follows what the code does, not how it looks or where it stands."""

import textwrap
from functools import partial

import numpy as np

from whet.targets.fingerprint import digest, of_c_source, of_callable


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
