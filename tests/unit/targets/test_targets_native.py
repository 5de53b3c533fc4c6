"""C functions as targets: what reaches the compiler, and what is refused before it does."""

from __future__ import annotations

import numpy as np
import pytest

import whet
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.status import Status
from whet.engine.target import BenchLimits
from whet.store import MemoryStore
from whet.targets.native.arguments import check_names, declarations

SCALE = "void scale(float *x, int n) { for (int i = 0; i < n; i++) x[i] *= FACTOR; }"


def scale(**changes):
    given = {
        "function": "scale",
        "args": {"x": np.ones(8, np.float32), "n": 8},
        "outputs": ["x"],
        "reference": lambda x, n: 2 * x,
    }
    return whet.native(SCALE, {"FACTOR": [2]}, **{**given, **changes})


def test_parameters_become_macros_and_flags_go_last():
    target = whet.native(
        SCALE,
        {"FACTOR": [2], "ON": [True], "opt": ["-O2 -funroll-loops"]},
        flags=["opt"],
        function="scale",
        args={"x": np.ones(1, np.float32), "n": 1},
    )
    arguments = target.compiler_arguments(target.space.first)
    assert arguments == (
        "-O3", "-march=native", "-DFACTOR=2", "-DON=1", "-O2", "-funroll-loops",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flags": ["FACTRO"]}, "did you mean 'FACTOR'"),
        ({"function": "no good"}, "not a valid C function name"),
        ({"args": {"x": [1, 2], "n": 2}}, "argument 'x' is a list"),
        ({"args": {"x": np.ones((4, 4))[:, ::2], "n": 2}}, "not contiguous"),
        ({"function": "elsewhere", "args": {"x": np.ones(2), "n": 2**40}}, r"numpy\.int64"),
        ({"outputs": []}, "a reference needs outputs"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    with pytest.raises(UsageError, match=message):
        scale(**changes)


def test_an_output_that_is_no_argument_is_named():
    with pytest.raises(UsageError, match="output 'y' is not an array"):
        whet.tune(scale(outputs=["y"]), store=MemoryStore())


def test_a_missing_file_is_named_with_those_there_are(tmp_path):
    (tmp_path / "scale.c").write_text(SCALE)
    with pytest.raises(UsageError, match=r"did you mean 'scale\.c'"):
        whet.native(tmp_path / "scael.c", {"FACTOR": [2]}, function="scale", args={})


def test_a_missing_compiler_is_named():
    with pytest.raises(UsageError, match="C compiler 'ccc' not found"):
        whet.tune(scale(compiler="ccc"), store=MemoryStore())


@pytest.mark.medium
def test_scalars_of_every_kind_arrive_as_they_are():
    source = """
    #include <stdint.h>
    void pack(double *out, int i, int64_t l, float f, double d, _Bool b, uint8_t u)
    { out[0] = i; out[1] = l; out[2] = f; out[3] = d; out[4] = b; out[5] = u; out[6] = N; }
    """
    given = {
        "out": np.zeros(7),
        "i": -3,
        "l": np.int64(2**40),
        "f": np.float32(0.5),
        "d": 0.25,
        "b": True,
        "u": np.uint8(200),
    }
    target = whet.native(
        source,
        {"N": [7]},
        function="pack",
        args=given,
        outputs=["out"],
        reference=np.array([-3, 2**40, 0.5, 0.25, 1, 200, 7.0]),
    )
    assert whet.tune(target, store=MemoryStore()).best.status is Status.OK


@pytest.mark.medium
def test_a_kernel_that_updates_in_place_is_checked_on_fresh_arguments():
    result = whet.tune(scale(), store=MemoryStore())
    assert result.best.status is Status.OK


@pytest.mark.medium
def test_the_authors_arrays_are_left_alone():
    x = np.ones(8, np.float32)
    whet.tune(scale(args={"x": x, "n": 8}), store=MemoryStore())
    assert (x == 1).all()


@pytest.mark.medium
def test_local_headers_are_found_beside_the_source(tmp_path):
    (tmp_path / "factor.h").write_text("#define FACTOR_OF(x) (2 * (x))\n")
    (tmp_path / "k.c").write_text(
        '#include "factor.h"\nvoid k(float *x, int n) { for (int i = 0; i < n; i++)'
        " x[i] = FACTOR_OF(x[i]) + ZERO; }\n"
    )
    target = whet.native(
        tmp_path / "k.c",
        {"ZERO": [0]},
        function="k",
        args={"x": np.ones(4, np.float32), "n": 4},
        outputs=["x"],
        reference=lambda x, n: 2 * x,
    )
    assert whet.tune(target, store=MemoryStore()).best.status is Status.OK


@pytest.mark.medium
def test_facts_of_the_binary_are_kept():
    result = whet.tune(scale(), store=MemoryStore())
    assert result.best.facts["bytes"] > 1000
    assert len(result.best.facts["sha256"]) == 16


@pytest.mark.medium
def test_build_stages_are_accounted_for():
    work = whet.tune(scale(), store=MemoryStore()).run.cost.work
    assert work["build"] >= work["build.compile"] + work["build.link"] > 0


def test_a_reference_with_the_wrong_number_of_outputs_is_refused():
    with pytest.raises(UsageError, match="2 values for 1 outputs"):
        scale(reference=lambda x, n: (x, x)).bench(BenchLimits())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reference": lambda x: x}, r"reference= of scale raised TypeError: .*argument 'n'"),
        ({"reference": lambda x, n: x / y}, r"raised NameError: .*in test_targets_native.py, line"),  # noqa: F821
        ({"reference": {"y": 1}}, "reference= of scale has 'y', which is no output; .*valid: x"),
        ({"args": lambda: undefined}, "args= of scale raised NameError"),  # noqa: F821
        ({"args": lambda: [1]}, "args= of scale is a list; give a dict"),
    ],
)
def test_a_mistake_in_the_authors_own_functions_is_said_to_be_there(changes, said):
    with pytest.raises(UsageError, match=said):
        scale(**changes).bench(BenchLimits())


def test_a_config_is_a_workload_of_its_own_when_the_problem_changes():
    small, large = scale(), scale(args={"x": np.ones(16, np.float32), "n": 16})
    assert small.workload().id != large.workload().id
    assert dict(small.workload().key) == {"x": "float32[8]", "n": 8}
    assert small.space.first == Config(FACTOR=2)


DOT = """
/* dot(const float *a, int b) in a comment is none, nor is "dot(int c)" */
static float part(const float *x) { return dot(x, 1); }
void dot(const float *x, const float *y, float *out, int n)
{
    out[0] = 0;
    for (int i = 0; i < n; i++) out[0] += x[i] * y[i] * SCALE;
}
"""


def refused(source: str, given: str, function: str = "dot") -> str:
    with pytest.raises(UsageError) as error:
        check_names(source, function, given.split())
    return str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("x yy out n", "'yy', but the C source has 'const float *y' there; did you mean 'y'?"),
        ("x y out m", "argument 4 of dot() 'm', but the C source has 'int n' there; did you mean"),
        ("x y out", "args= has 3 (x, y, out) for dot(), but the C function takes 4 (x, y, out, n)"),
        ("x y out n k", "args= has 5 (x, y, out, n, k) for dot()"),
        (
            "y x out n",
            "args= gives y, x, out, n, but dot() in C takes x, y, out, n; use the same order",
        ),
    ],
)
def test_a_misnamed_argument_is_refused_with_both_names(given: str, message: str) -> None:
    assert message in refused(DOT, given)


def test_it_is_refused_when_the_target_is_made() -> None:
    x = np.ones(8, np.float32)
    with pytest.raises(UsageError, match="'m', but the C source has 'int n'"):
        whet.native(
            DOT, {"SCALE": [1]}, function="dot", args={"x": x, "y": x, "out": x.copy(), "m": 8}
        )


def test_arguments_that_a_function_makes_are_refused_before_anything_is_built() -> None:
    x = np.ones(8, np.float32)
    target = whet.native(
        DOT,
        {"SCALE": [1]},
        function="dot",
        args=lambda: {"x": x, "y": x, "result": x.copy(), "n": 8},
    )
    with pytest.raises(UsageError, match="'result', but the C source has 'float \\*out'"):
        whet.tune(target, store=MemoryStore())


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ("void", []),
        ("", []),
        ("const float *restrict x, unsigned long long n", ["x", "n"]),
        ("const float * const x, float *const *rows", ["x", "rows"]),
        ("float *__restrict__ /* in, out */ x, // the data\n int n", ["x", "n"]),
        ("float x[], double y[static 8], int z[N][M]", ["x", "y", "z"]),
        ("float (*rows)[N], void (*call)(int, float), int n", ["rows", "call", "n"]),
        ("struct point *p, struct point q, enum kind k", ["p", "q", "k"]),
        ("real_t *x, size_t n, uint8_t u", ["x", "n", "u"]),
        ("__attribute__((unused)) int n, float *x __attribute__((aligned(64)))", ["n", "x"]),
        ("int n, float a[n][n + 1]", ["n", "a"]),
        ("float *x,\\\n    int n", ["x", "n"]),
    ],
)
def test_parameters_are_read_however_they_are_declared(parameters: str, names: list[str]) -> None:
    source = f"void f({parameters}) {{ }}\n"
    [found] = declarations(source, "f")
    assert [parameter.name for parameter in found] == names
    check_names(source, "f", names)
    assert "takes" in refused(source, " ".join([*names, "more"]), "f")


@pytest.mark.parametrize(
    "source",
    [
        "#define REAL float\nvoid f(const REAL *x, int n) { }",
        "#define RESTRICT restrict\nvoid f(float *RESTRICT x, int n) { }",
        "void f(float *x UNUSED, int n UNUSED) { }",
        "#define DATA x\nvoid f(float *DATA, int n) { }",
        "EXPORT(void) f(float *x, int n) { }",
        "void f(const float *, int);\nvoid f(const float *x, int n) { }",
        "void f(float *data, int size);\nvoid f(float *x, int n) { }",
        "#if WIDE\nvoid f(double *a, int n) {\n#else\nvoid f(float *x, int n) {\n#endif\n}",
        '#ifdef __cplusplus\nextern "C" {\n#endif\nvoid f(float *x, int n) { }',
        "char brace = '{';\nchar *text = \"/*\";\nvoid f(float *x, int n) { }",
    ],
)
def test_macros_attributes_and_other_declarations_do_not_get_in_the_way(source: str) -> None:
    check_names(source, "f", ["x", "n"])
    refused(source, "x n more", "f")


@pytest.mark.parametrize(
    "source",
    [
        '#include "f.h"',
        "void g(float *x) { f(x, 1); return f(x); }",
        "#define PARAMETERS float *x, int n\nvoid f(PARAMETERS) { }",
        "#define REST int m, int k\nvoid f(float *x, REST q) { }",
        "void f(PAIR(x, n)) { }",
        "void f(x, n) float *x; int n; { }",
        "void NAME(f)(float *x) { }",
        "void f(const char *format, ...) { }",
        "void f(std::map<int, int> &x) { }",
        "void f(const float *, real_t);",
        "void f(float *x, int n",
    ],
)
def test_what_cannot_be_read_without_a_preprocessor_is_let_through(source: str) -> None:
    check_names(source, "f", ["any", "thing"])


def passed(declared: str, value: object) -> object:
    """What `f` is called with, for a whole source or for its one parameter `x`."""
    source = declared if "f(" in declared else f"void f({declared})\n{{ }}\n"
    return whet.native(source, {"SCALE": [1]}, function="f", args={"x": value}).args["x"]


@pytest.mark.parametrize(
    ("declared", "given", "wanted"),
    [
        ("const float *x", "float64", "float32"),
        ("float *restrict const x", "float64", "float32"),
        ("float x[static 4][N]", "float64", "float32"),
        ("double (*x)[N]", "float32", "float64"),
        ("long double *x", "float64", "longdouble"),
        ("_Float16 *x", "float32", "float16"),
        ("float _Complex *x", "complex128", "complex64"),
        ("long *x", "int32", "int64"),
        ("short int *x", "int32", "int16"),
        ("int *x", "float32", "int32"),
        ("unsigned *x", "int32", "uint32"),
        ("long unsigned int *x", "int64", "uint64"),
        ("signed char *x", "uint8", "int8"),
        ("size_t x[]", "uint32", "uint64"),
        ("bool *x", "int32", "bool"),
        ("char *x", "int32", "int8"),
        ("typedef float real;\ntypedef real *reals;\nvoid f(reals x) { }", "float64", "float32"),
        ("#define REAL double\nvoid f(const REAL *x) { }", "float32", "float64"),
    ],
)
def test_an_array_of_another_type_is_refused_with_both(
    declared: str, given: str, wanted: str
) -> None:
    said = rf"argument 'x' is an array of {given}, but f\(\) .*x.*; pass x.astype\(numpy.{wanted}\)"
    with pytest.raises(UsageError, match=said):
        passed(declared, np.ones(4, given))


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        ("const float *x", "float32"),
        ("float *x", "complex64"),
        ("unsigned long long *x", "uint64"),
        ("char *x", "uint8"),
        ("unsigned char *x", "bool"),
        ("const char *x", "S3"),
        ("uint16_t *x", "float16"),
        ("void *x", "float64"),
        ("float **x", "int64"),
        ("struct point *x", "float64"),
        ("SCALE *x", "float64"),
        ("typedef float v8 __attribute__((vector_size(32)));\nvoid f(v8 *x) { }", "float64"),
        ("#ifndef T\n#define T float\n#endif\nvoid f(T *x) { }", "float64"),
        ("#if WIDE\nvoid f(double *x) {\n#else\nvoid f(float *x) {\n#endif\n}", "float64"),
    ],
)
def test_an_array_that_fits_or_that_only_a_compiler_could_judge_is_let_through(
    declared: str, given: str
) -> None:
    array = np.ones(4, given)
    assert passed(declared, array) is array


@pytest.mark.parametrize(
    ("declared", "value", "dtype"),
    [
        ("float x", 0.5, "float32"),
        ("double x", 3, "float64"),
        ("size_t x", 1024, "uint64"),
        ("long x", 2**40, "int64"),
        ("int x", np.int64(7), "int32"),
    ],
)
def test_a_number_gets_the_width_that_the_function_takes(
    declared: str, value: object, dtype: str
) -> None:
    number = passed(declared, value)
    assert isinstance(number, np.generic)
    assert (number.dtype.name, number) == (dtype, value)


@pytest.mark.parametrize(
    ("declared", "value", "said"),
    [
        ("unsigned x", -1, "argument 'x' is -1, but .* takes 'unsigned x', which cannot hold it"),
        ("int x", 1.5, "argument 'x' is 1.5, but .* takes 'int x', which cannot hold it"),
        ("int x", 2**31, "which cannot hold it"),
        (
            "int x",
            np.ones(4, np.int32),
            r"is an array, but f\(\) in C takes 'int x'; pass a number",
        ),
        ("float *x", 1.0, r"is a float, but f\(\) in C takes 'float \*x'; pass a NumPy array"),
        ("float *x", np.ones(4, ">f4"), "in another order"),
    ],
)
def test_what_does_not_fit_is_refused(declared: str, value: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        passed(declared, value)
