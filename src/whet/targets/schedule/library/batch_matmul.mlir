// Products of many small matrices. Threads share the blocks of bi by bj numbers of each product; within
// a block, tiles of ti by tj numbers stay in registers while tk numbers of k are added at a time.
module attributes {transform.with_named_sequence, whet.constraints = [
  "bi % ti == 0",
  "bj % tj == 0",
  "bi <= {m} or bi == 8",
  "bj <= {n} or bj == 16"
]} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %product = transform.structured.match ops{["linalg.batch_matmul"]} in %root
      : (!transform.any_op) -> !transform.any_op
    %fill = transform.structured.match ops{["linalg.fill"]} in %root : (!transform.any_op) -> !transform.any_op

    %ti = transform.tune.knob<"ti"> options = [8, 4, 16] -> !transform.param<i64>
    %tj = transform.tune.knob<"tj"> options = [32, 16, 64] -> !transform.param<i64>
    %tk = transform.tune.knob<"tk"> options = [4, 1, 2, 8] -> !transform.param<i64>
    %bi = transform.tune.knob<"bi"> options = [32, 8, 16, 64, 128] -> !transform.param<i64>
    %bj = transform.tune.knob<"bj"> options = [64, 16, 32, 128] -> !transform.param<i64>

    %block, %blocks = transform.structured.tile_using_forall %product tile_sizes [1, %bi, %bj]
      : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op)
    %init, %with_init = transform.structured.fuse_into_containing_op %fill into %blocks
      : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    %small = transform.tune.alternatives<"order"> attributes {whet.names = ["rows", "columns"]}
      -> !transform.any_op {
      %tile, %b, %i, %j = transform.structured.fuse %block tile_sizes [1, %ti, %tj]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
      transform.yield %tile : !transform.any_op
    }, {
      %tile, %b, %j, %i = transform.structured.fuse %block tile_sizes [1, %ti, %tj]
        interchange [0, 2, 1]
        : (!transform.any_op, !transform.param<i64>, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
      transform.yield %tile : !transform.any_op
    }
    %step, %k = transform.structured.tile_using_for %small tile_sizes [0, 0, 0, %tk]
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
