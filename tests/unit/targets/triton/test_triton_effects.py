"""What a kernel does to its pointers is read off its TTIR."""

import pytest

pytest.importorskip("triton")

import triton_kernels as kernels
from whet.targets.triton.compiler.effects import Effects, effects

F32 = "*fp32"
NONE = frozenset()


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def effects_of(kernel, **signature):
    return effects(kernels.ttir_of(kernel, **signature))


def known(reads=(), writes=(), atomics=()):
    return Effects(frozenset(reads), frozenset(writes), frozenset(atomics), unknown=False)


@pytest.mark.medium
def test_a_copy_reads_one_pointer_writes_the_other_and_updates_none():
    found = effects_of(kernels.copy, x_ptr=F32, y_ptr=F32, n="i32")
    assert found == known(reads={0}, writes={1})
    assert found.updated == NONE


@pytest.mark.medium
def test_positions_count_every_parameter_that_is_compiled():
    found = effects_of(kernels.matmul, a_ptr="*fp16", b_ptr="*fp16", c_ptr=F32, K="i32")
    assert found == known(reads={0, 1}, writes={2})


@pytest.mark.medium
def test_an_in_place_addition_updates_its_target_only():
    assert effects_of(kernels.add_in_place, x_ptr=F32, y_ptr=F32).updated == {0}


@pytest.mark.medium
def test_a_sum_kept_in_memory_through_a_loop_is_updated():
    found = effects_of(kernels.accumulate_in_loop, x_ptr=F32, total_ptr=F32, n="i32")
    assert found.updated == {1}


@pytest.mark.medium
def test_an_atomic_addition_updates_without_a_load():
    found = effects_of(kernels.atomic_add, x_ptr=F32, total_ptr=F32)
    assert found == known(reads={0}, atomics={1})
    assert found.updated == {1}


@pytest.mark.medium
def test_compare_and_swap_updates():
    found = effects_of(kernels.take_lock, lock_ptr="*i32", out_ptr="*i32")
    assert found == known(writes={1}, atomics={0})


@pytest.mark.medium
def test_a_store_to_either_of_two_pointers_writes_both():
    found = effects_of(kernels.store_to_either, a_ptr=F32, b_ptr=F32, n="i32")
    assert found == known(writes={0, 1})


@pytest.mark.medium
def test_a_pointer_switched_inside_a_loop_reads_both():
    found = effects_of(kernels.switch_in_loop, x_ptr=F32, y_ptr=F32, out_ptr=F32, n="i32")
    assert found == known(reads={0, 1}, writes={2})


@pytest.mark.medium
def test_a_pointer_is_followed_through_while_and_early_return():
    found = effects_of(kernels.follow_links, links_ptr="*i32", out_ptr="*i32", n="i32")
    assert found == known(reads={0}, writes={0, 1})


@pytest.mark.medium
def test_a_pointer_is_followed_into_and_out_of_helpers():
    found = effects_of(kernels.store_in_helper, x_ptr=F32, y_ptr=F32, n="i32")
    assert found == known(reads={0}, writes={1})


@pytest.mark.medium
def test_descriptors_made_in_the_kernel_are_followed():
    shape = {"M": "i32", "N": "i32"}
    found = effects_of(kernels.copy_by_descriptor, a_ptr=F32, b_ptr=F32, **shape)
    assert found == known(reads={0}, writes={1})


@pytest.mark.medium
def test_a_descriptor_reduction_is_atomic():
    shape = {"M": "i32", "N": "i32"}
    found = effects_of(kernels.reduce_by_descriptor, a_ptr=F32, b_ptr=F32, **shape)
    assert found == known(reads={0}, atomics={1})


@pytest.mark.medium
def test_a_descriptor_given_as_argument_takes_its_shape_and_strides_along():
    found = effects_of(kernels.increment_descriptor, tile="tensordesc<fp32[16,16]>", out_ptr=F32)
    assert found == known(reads={0}, writes={0, 5})


@pytest.mark.medium
def test_inline_assembly_may_do_anything_to_the_pointers_it_gets():
    found = effects_of(kernels.inline_assembly, x_ptr="*i32", out_ptr="*i32", n="i32")
    assert found == known(reads={0}, writes={0, 1})


@pytest.mark.medium
def test_a_store_to_a_loaded_address_is_unknown():
    found = effects_of(kernels.store_to_loaded_address, table_ptr="*i64", x_ptr=F32)
    assert found.unknown


@pytest.mark.medium
def test_a_load_from_a_loaded_address_may_read_every_pointer():
    found = effects_of(kernels.load_from_loaded_address, table_ptr="*i64", out_ptr=F32)
    assert found == known(reads={0, 1}, writes={1})


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
