// The bias and max(x, 0) are applied to a block as soon as its product is there.
// Threads share the blocks of bi by bj numbers. Within a block, k is walked whole or bk at a time, and
// tiles of ti by tj numbers stay in registers while tk numbers of k are added at a time. "pack" copies b,
// or both factors, into the order in which they are read.
module attributes {transform.with_named_sequence, whet.constraints = [
  "bi % ti == 0",
  "bj % tj == 0",
  "bi <= {m} or bi == 16",
  "bj <= {n} or bj == 32",
  "k == 'blocks' or bk == 256",
  "k == 'whole' or {k} % bk == 0",
  "pack == 'none' or {m} % bi == 0 and {n} % bj == 0"
]} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %last = transform.structured.match ops{["linalg.generic"]} in %root : (!transform.any_op) -> !transform.any_op
    %product = transform.structured.match ops{["linalg.matmul"]} in %root : (!transform.any_op) -> !transform.any_op
    %fill = transform.structured.match ops{["linalg.fill"]} in %root : (!transform.any_op) -> !transform.any_op

    %ti = transform.tune.knob<"ti"> options = [8, 4, 12, 16] -> !transform.param<i64>
    %tj = transform.tune.knob<"tj"> options = [32, 16, 48, 64] -> !transform.param<i64>
    %tk = transform.tune.knob<"tk"> options = [4, 1, 2, 8] -> !transform.param<i64>
    %bi = transform.tune.knob<"bi"> options = [64, 16, 32, 96, 128, 192, 256] -> !transform.param<i64>
    %bj = transform.tune.knob<"bj"> options = [64, 32, 128, 192, 256, 512] -> !transform.param<i64>
    %bk = transform.tune.knob<"bk"> options = [256, 128, 512] -> !transform.param<i64>

    %inner, %init, %si, %sj = transform.tune.alternatives<"pack">
      attributes {whet.names = ["b", "both", "none"]}
      -> !transform.any_op, !transform.any_op, !transform.param<i64>, !transform.param<i64> {
      %packed = transform.structured.pack %product packed_sizes = [0, 32, 0]
        {whet.set = {static_packed_sizes = [0, "tj", 0]}} : (!transform.any_op) -> !transform.op<"linalg.generic">
      %b_rows = transform.get_producer_of_operand %packed[1] : (!transform.op<"linalg.generic">) -> !transform.op<"linalg.pack">
      %turned, %b, %none = transform.structured.pack_transpose %b_rows with_compute_op(%packed)
        outer_perm = [1, 0] : (!transform.op<"linalg.pack">, !transform.op<"linalg.generic">) -> (!transform.op<"linalg.generic">, !transform.op<"linalg.pack">, !transform.any_op)
      %all = transform.structured.match ops{["func.func"]} in %root : (!transform.any_op) -> !transform.any_op
      transform.apply_patterns to %all { // folds the packing of zeros
        transform.apply_patterns.canonicalization
      } : !transform.any_op
      %zeros = transform.get_producer_of_operand %turned[2] : (!transform.op<"linalg.generic">) -> !transform.any_op
      %unpack = transform.structured.match ops{["linalg.unpack"]} in %root
        : (!transform.any_op) -> !transform.op<"linalg.unpack">
      %block, %blocks = transform.structured.tile_using_forall %last tile_sizes [%bi, %bj]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %unpacked, %with_unpack = transform.structured.fuse_into_containing_op %unpack into %blocks
        : (!transform.op<"linalg.unpack">, !transform.any_op) -> (!transform.any_op, !transform.any_op)
      %in, %with_product = transform.structured.fuse_into_containing_op %turned into %with_unpack
        : (!transform.op<"linalg.generic">, !transform.any_op) -> (!transform.any_op, !transform.any_op)
      %filled, %whole = transform.structured.fuse_into_containing_op %zeros into %with_product
        : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
      %tile, %i, %j = transform.structured.tile_using_for %block tile_sizes [%ti, %tj]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
      %out, %with_out = transform.structured.fuse_into_containing_op %unpacked into %j
        : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
      %out_pack = transform.cast %out : !transform.any_op to !transform.op<"linalg.unpack">
      %l1, %l2, %l3, %l4, %l5 = transform.structured.lower_unpack %out_pack
        : (!transform.op<"linalg.unpack">) -> (!transform.op<"tensor.empty">,
          !transform.op<"linalg.transpose">, !transform.op<"tensor.collapse_shape">,
          !transform.op<"tensor.extract_slice">, !transform.op<"linalg.copy">)
      %b_some, %b_each = transform.structured.tile_using_forall %b tile_sizes [1]
        : (!transform.op<"linalg.pack">) -> (!transform.any_op, !transform.any_op)
      %b_step, %b_k = transform.structured.tile_using_for %b_some tile_sizes [0, 4]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
      %b_last = transform.cast %b_step : !transform.any_op to !transform.op<"linalg.pack">
      %b_pad, %b_split, %b_turned = transform.structured.lower_pack %b_last : (!transform.op<"linalg.pack">)
        -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
            !transform.op<"linalg.transpose">)
      %one = transform.param.constant 1 : i64 -> !transform.param<i64>
      transform.yield %in, %filled, %ti, %one : !transform.any_op, !transform.any_op, !transform.param<i64>, !transform.param<i64>
    }, {
      %packed = transform.structured.pack %product packed_sizes = [8, 32, 0]
        {whet.set = {static_packed_sizes = ["ti", "tj", 0]}} : (!transform.any_op) -> !transform.op<"linalg.generic">
      %b_rows = transform.get_producer_of_operand %packed[1] : (!transform.op<"linalg.generic">) -> !transform.op<"linalg.pack">
      %turned, %b, %none = transform.structured.pack_transpose %b_rows with_compute_op(%packed)
        outer_perm = [1, 0] : (!transform.op<"linalg.pack">, !transform.op<"linalg.generic">) -> (!transform.op<"linalg.generic">, !transform.op<"linalg.pack">, !transform.any_op)
      %all = transform.structured.match ops{["func.func"]} in %root : (!transform.any_op) -> !transform.any_op
      transform.apply_patterns to %all { // folds the packing of zeros
        transform.apply_patterns.canonicalization
      } : !transform.any_op
      %a = transform.get_producer_of_operand %turned[0] : (!transform.op<"linalg.generic">) -> !transform.op<"linalg.pack">
      %zeros = transform.get_producer_of_operand %turned[2] : (!transform.op<"linalg.generic">) -> !transform.any_op
      %unpack = transform.structured.match ops{["linalg.unpack"]} in %root
        : (!transform.any_op) -> !transform.op<"linalg.unpack">
      %block, %blocks = transform.structured.tile_using_forall %last tile_sizes [%bi, %bj]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %unpacked, %with_unpack = transform.structured.fuse_into_containing_op %unpack into %blocks
        : (!transform.op<"linalg.unpack">, !transform.any_op) -> (!transform.any_op, !transform.any_op)
      %in, %with_product = transform.structured.fuse_into_containing_op %turned into %with_unpack
        : (!transform.op<"linalg.generic">, !transform.any_op) -> (!transform.any_op, !transform.any_op)
      %filled, %whole = transform.structured.fuse_into_containing_op %zeros into %with_product
        : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
      %tile, %i, %j = transform.structured.tile_using_for %block tile_sizes [%ti, %tj]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
      %out, %with_out = transform.structured.fuse_into_containing_op %unpacked into %j
        : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
      %out_pack = transform.cast %out : !transform.any_op to !transform.op<"linalg.unpack">
      %l1, %l2, %l3, %l4, %l5 = transform.structured.lower_unpack %out_pack
        : (!transform.op<"linalg.unpack">) -> (!transform.op<"tensor.empty">,
          !transform.op<"linalg.transpose">, !transform.op<"tensor.collapse_shape">,
          !transform.op<"tensor.extract_slice">, !transform.op<"linalg.copy">)
      %a_some, %a_each = transform.structured.tile_using_forall %a tile_sizes [1]
        : (!transform.op<"linalg.pack">) -> (!transform.any_op, !transform.any_op)
      %a_step, %a_k = transform.structured.tile_using_for %a_some tile_sizes [0, 16]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
      %a_last = transform.cast %a_step : !transform.any_op to !transform.op<"linalg.pack">
      %a_pad, %a_split, %a_turned = transform.structured.lower_pack %a_last : (!transform.op<"linalg.pack">)
        -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
            !transform.op<"linalg.transpose">)
      %b_some, %b_each = transform.structured.tile_using_forall %b tile_sizes [1]
        : (!transform.op<"linalg.pack">) -> (!transform.any_op, !transform.any_op)
      %b_step, %b_k = transform.structured.tile_using_for %b_some tile_sizes [0, 4]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
      %b_last = transform.cast %b_step : !transform.any_op to !transform.op<"linalg.pack">
      %b_pad, %b_split, %b_turned = transform.structured.lower_pack %b_last : (!transform.op<"linalg.pack">)
        -> (!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">,
            !transform.op<"linalg.transpose">)
      %one = transform.param.constant 1 : i64 -> !transform.param<i64>
      transform.yield %in, %filled, %one, %one : !transform.any_op, !transform.any_op, !transform.param<i64>, !transform.param<i64>
    }, {
      %block, %blocks = transform.structured.tile_using_forall %last tile_sizes [%bi, %bj]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %in, %with_product = transform.structured.fuse_into_containing_op %product into %blocks
        : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
      %filled, %whole = transform.structured.fuse_into_containing_op %fill into %with_product
        : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
      %tile, %i, %j = transform.structured.tile_using_for %block tile_sizes [%ti, %tj]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
      transform.yield %in, %filled, %ti, %tj : !transform.any_op, !transform.any_op, !transform.param<i64>, !transform.param<i64>
    }

    %small = transform.tune.alternatives<"k"> attributes {whet.names = ["whole", "blocks"]}
      -> !transform.any_op {
      %tile = transform.tune.alternatives<"order"> attributes {whet.names = ["rows", "columns"]}
        -> !transform.any_op {
        %one, %i, %j = transform.structured.fuse %inner tile_sizes [%si, %sj]
          : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
        transform.yield %one : !transform.any_op
      }, {
        %one, %j, %i = transform.structured.fuse %inner tile_sizes [%si, %sj]
          interchange [1, 0] : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
        transform.yield %one : !transform.any_op
      }
      transform.yield %tile : !transform.any_op
    }, {
      %zero, %zi, %zj = transform.structured.tile_using_for %init tile_sizes [%si, %sj]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
      %part, %outer = transform.structured.tile_using_for %inner tile_sizes [0, 0, %bk]
        : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
      %tile = transform.tune.alternatives<"order"> attributes {whet.names = ["rows", "columns"]}
        -> !transform.any_op {
        %one, %i, %j = transform.structured.tile_using_for %part tile_sizes [%si, %sj]
          : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
        transform.yield %one : !transform.any_op
      }, {
        %one, %j, %i = transform.structured.tile_using_for %part tile_sizes [%si, %sj]
          interchange = [1, 0] : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
        transform.yield %one : !transform.any_op
      }
      transform.yield %tile : !transform.any_op
    }
    %step, %kk = transform.structured.tile_using_for %small tile_sizes [0, 0, %tk]
      : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)

    %scheduled = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.tune.alternatives<"vectorize"> attributes {whet.names = ["yes", "no"]} {
      %vectorized = transform.structured.vectorize_children_and_apply_patterns %scheduled
        : (!transform.any_op) -> !transform.any_op
      transform.yield
    }, {
      transform.yield
    }

    // Keep accumulators in registers while a reduction is walked.
    %func = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %func {
      transform.apply_patterns.vector.cast_away_vector_leading_one_dim
      transform.apply_patterns.canonicalization
    } : !transform.any_op
    %hoisted = transform.structured.hoist_redundant_vector_transfers %func
      : (!transform.any_op) -> !transform.any_op
    %loops = transform.structured.match ops{["scf.for"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.apply_licm to %loops : !transform.any_op
    transform.loop.hoist_loop_invariant_subsets %loops : !transform.any_op
    %cleaned = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %cleaned {
      transform.apply_patterns.canonicalization
    } : !transform.any_op

    transform.bufferization.eliminate_empty_tensors %cleaned : !transform.any_op
    %module = transform.bufferization.one_shot_bufferize %root
      {bufferize_function_boundaries = true} : (!transform.any_op) -> !transform.any_op

    %buffered = transform.structured.match ops{["func.func"]} in %module
      : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.lower_contraction lowering_strategy = "outerproduct"
    } : !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.lower_outerproduct
    } : !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.transfer_to_scf full_unroll = true
    } : !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.lower_transfer max_transfer_rank = 1
    } : !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.lower_shape_cast
    } : !transform.any_op
    transform.apply_patterns to %buffered {
      transform.apply_patterns.vector.lower_transpose lowering_strategy = "shuffle_1d"
    } : !transform.any_op
    transform.yield
  }
}
