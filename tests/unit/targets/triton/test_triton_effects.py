"""What a kernel does to its pointers is read off its TTIR."""

import pytest

pytest.importorskip("triton")

import triton_kernels as kernels
from whet.targets.triton.compiler.effects import Effects, effects

F32 = "*fp32"


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def known(reads=(), writes=(), atomics=()):
    return Effects(frozenset(reads), frozenset(writes), frozenset(atomics), unknown=False)


SHAPE = {"M": "i32", "N": "i32"}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "signature", "expected"),
    [
        ("copy", {"x_ptr": F32, "y_ptr": F32, "n": "i32"}, known({0}, {1})),
        (
            "matmul",
            {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": F32, "K": "i32"},
            known({0, 1}, {2}),
        ),
        ("atomic_add", {"x_ptr": F32, "total_ptr": F32}, known({0}, atomics={1})),
        ("take_lock", {"lock_ptr": "*i32", "out_ptr": "*i32"}, known((), {1}, {0})),
        ("store_to_either", {"a_ptr": F32, "b_ptr": F32, "n": "i32"}, known((), {0, 1})),
        (
            "switch_in_loop",
            {"x_ptr": F32, "y_ptr": F32, "out_ptr": F32, "n": "i32"},
            known({0, 1}, {2}),
        ),
        (
            "follow_links",
            {"links_ptr": "*i32", "out_ptr": "*i32", "n": "i32"},
            known({0}, {0, 1}),
        ),
        ("store_in_helper", {"x_ptr": F32, "y_ptr": F32, "n": "i32"}, known({0}, {1})),
        ("copy_by_descriptor", {"a_ptr": F32, "b_ptr": F32, **SHAPE}, known({0}, {1})),
        ("reduce_by_descriptor", {"a_ptr": F32, "b_ptr": F32, **SHAPE}, known({0}, atomics={1})),
        # A descriptor given as argument takes its shape and strides along.
        (
            "increment_descriptor",
            {"tile": "tensordesc<fp32[16,16]>", "out_ptr": F32},
            known({0}, {0, 5}),
        ),
        # Inline assembly may do anything to the pointers it gets.
        (
            "inline_assembly",
            {"x_ptr": "*i32", "out_ptr": "*i32", "n": "i32"},
            known({0}, {0, 1}),
        ),
        # From a loaded address every pointer may be read.
        ("load_from_loaded_address", {"table_ptr": "*i64", "out_ptr": F32}, known({0, 1}, {1})),
    ],
)
def test_what_is_read_and_written_is_followed_to_the_parameters(name, signature, expected):
    assert effects(kernels.ttir_of(getattr(kernels, name), **signature)) == expected


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "signature", "updated"),
    [
        ("copy", {"x_ptr": F32, "y_ptr": F32, "n": "i32"}, set()),
        ("add_in_place", {"x_ptr": F32, "y_ptr": F32}, {0}),
        ("accumulate_in_loop", {"x_ptr": F32, "total_ptr": F32, "n": "i32"}, {1}),
        ("atomic_add", {"x_ptr": F32, "total_ptr": F32}, {1}),
    ],
)
def test_what_is_read_and_written_or_atomic_is_updated(name, signature, updated):
    assert effects(kernels.ttir_of(getattr(kernels, name), **signature)).updated == updated


@pytest.mark.medium
def test_a_store_to_a_loaded_address_is_unknown():
    text = kernels.ttir_of(kernels.store_to_loaded_address, table_ptr="*i64", x_ptr=F32)
    assert effects(text).unknown


def body(*lines, header="%arg0: !tt.ptr<f32>, %arg1: !tt.ptr<f32>, %arg2: i32"):
    inside = "\n".join(f"    {line} loc(#loc3)" for line in lines)
    return (
        '#loc = loc("k.py":1:0)\nmodule {\n'
        f"  tt.func public @kernel({header}) attributes {{noinline = false}} {{\n{inside}\n"
        "    tt.return\n  }\n}\n"
    )


def test_numbered_arguments_with_attributes_are_positions_too():
    header = (
        '%arg0: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("k.py":1:0), '
        '%arg1: i32 loc("%odd"), %arg2: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc(#loc)'
    )
    text = body(
        "%0 = tt.load %arg0 : !tt.ptr<f32>",
        "tt.store %arg2, %0 : !tt.ptr<f32>",
        header=header,
    )
    assert effects(text) == known(reads={0}, writes={2})


def test_block_pointers_are_followed():
    text = body(
        "%c0 = arith.constant 0 : i32",
        "%s = arith.extsi %arg2 : i32 to i64",
        "%0 = tt.make_tensor_ptr %arg0, [%s], [%s], [%c0] {order = array<i32: 0>}"
        " : <tensor<16xf32>>",
        "%1 = tt.advance %0, [%c0] : <tensor<16xf32>>",
        "%2 = tt.load %1 : !tt.ptr<tensor<16xf32>>",
        "tt.store %1, %2 : !tt.ptr<tensor<16xf32>>",
    )
    assert effects(text) == known(reads={0}, writes={0})


def test_block_arguments_are_followed_through_branches():
    text = body(
        "%0 = arith.cmpi sgt, %arg2, %arg2 : i32",
        "cf.cond_br %0, ^bb1(%arg0 : !tt.ptr<f32>), ^bb1(%arg1 : !tt.ptr<f32>)",
        "^bb1(%1: !tt.ptr<f32> loc(#loc)):  // 2 preds: ^bb0, ^bb0",
        "%2 = tt.load %1 : !tt.ptr<f32>",
        "cf.br ^bb2(%arg0, %2 : !tt.ptr<f32>, f32)",
        "^bb2(%3: !tt.ptr<f32>, %4: f32):",
        "tt.store %3, %4 : !tt.ptr<f32>",
    )
    assert effects(text) == known(reads={0, 1}, writes={0})


def test_a_name_used_again_in_another_region_is_another_value():
    text = body(
        "%c = arith.cmpi sgt, %arg2, %arg2 : i32",
        "scf.if %c {",
        "%5 = tt.addptr %arg0, %arg2 : !tt.ptr<f32>, i32",
        "%6 = tt.load %5 : !tt.ptr<f32>",
        "} else {",
        "%5 = tt.addptr %arg1, %arg2 : !tt.ptr<f32>, i32",
        "tt.store %5, %arg2 : !tt.ptr<f32>",
        "}",
    ).replace("{ loc(#loc3)", "{")
    assert effects(text) == known(reads={0}, writes={1})


def test_a_pointer_turned_into_a_number_and_back_is_followed():
    text = body(
        "%0 = tt.ptr_to_int %arg1 : !tt.ptr<f32> -> i64",
        "%1 = arith.extsi %arg2 : i32 to i64",
        "%2 = arith.addi %0, %1 : i64",
        "%3 = tt.int_to_ptr %2 : i64 -> !tt.ptr<f32>",
        "tt.store %3, %arg2 : !tt.ptr<f32>",
    )
    assert effects(text) == known(writes={1})


def test_a_choice_between_a_parameter_and_a_foreign_address_is_unknown():
    text = body(
        "%0 = tt.load %arg0 : !tt.ptr<i64>",
        "%1 = tt.int_to_ptr %0 : i64 -> !tt.ptr<f32>",
        "%2 = arith.cmpi sgt, %arg2, %arg2 : i32",
        "%3 = arith.select %2, %arg1, %1 : !tt.ptr<f32>",
        "tt.store %3, %arg2 : !tt.ptr<f32>",
    )
    found = effects(text)
    assert found.writes == {1}
    assert found.unknown


def test_an_operation_not_heard_of_reads_and_writes_the_pointers_it_takes():
    text = body("tt.some_new_thing %arg1, %arg2 : !tt.ptr<f32>, i32")
    assert effects(text) == known(reads={1}, writes={1})


def test_a_helper_that_is_only_declared_may_do_anything_to_its_pointers():
    text = body("tt.call @elsewhere(%arg0) : (!tt.ptr<f32>) -> ()").replace(
        "module {\n", "module {\n  tt.func private @elsewhere(!tt.ptr<f32>)\n"
    )
    assert effects(text) == known(reads={0}, writes={0})


def test_text_without_a_kernel_is_unknown():
    assert effects("module {\n}\n").unknown
