// The five stages of an IREE-style pipeline for a GPU: tiles for workgroups, tiles for threads,
// vectors, buffers, and loops mapped to blocks and threads. It can be looked at on any machine.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
    %wi = transform.tune.knob<"wi"> options = [32, 64] -> !transform.param<i64>
    %wj = transform.tune.knob<"wj"> options = [64, 32] -> !transform.param<i64>
    %last = transform.structured.match ops{["linalg.generic"]} in %root
      : (!transform.any_op) -> !transform.any_op
    %product = transform.structured.match ops{["linalg.matmul"]} in %root
      : (!transform.any_op) -> !transform.any_op
    %fill = transform.structured.match ops{["linalg.fill"]} in %root
      : (!transform.any_op) -> !transform.any_op

    // 1. Tile to workgroups.
    %group, %groups = transform.structured.tile_using_forall %last tile_sizes [%wi, %wj]
      (mapping = [#gpu.block<y>, #gpu.block<x>])
      : (!transform.any_op, !transform.param<i64>, !transform.param<i64>)
      -> (!transform.any_op, !transform.any_op)
    %inner, %with_product = transform.structured.fuse_into_containing_op %product into %groups
      : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    %zero, %with_zero = transform.structured.fuse_into_containing_op %fill into %with_product
      : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)

    // 2. Tile to threads.
    %part, %k = transform.structured.tile_using_for %inner tile_sizes [0, 0, 8]
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %t1, %threads1 = transform.structured.tile_using_forall %part num_threads [8, 16]
      (mapping = [#gpu.thread<y>, #gpu.thread<x>])
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %t2, %threads2 = transform.structured.tile_using_forall %group num_threads [8, 16]
      (mapping = [#gpu.thread<y>, #gpu.thread<x>])
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %t3, %threads3 = transform.structured.tile_using_forall %zero num_threads [8, 16]
      (mapping = [#gpu.thread<y>, #gpu.thread<x>])
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op)

    // 3. Vectorize.
    %tiled = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    %vectorized = transform.structured.vectorize_children_and_apply_patterns %tiled
      : (!transform.any_op) -> !transform.any_op

    // 4. Bufferize.
    %func = transform.structured.match ops{["func.func"]} in %root
      : (!transform.any_op) -> !transform.any_op
    transform.bufferization.eliminate_empty_tensors %func : !transform.any_op
    %module = transform.bufferization.one_shot_bufferize %root
      {bufferize_function_boundaries = true} : (!transform.any_op) -> !transform.any_op

    // 5. Map to the GPU.
    %buffered = transform.structured.match ops{["func.func"]} in %module
      : (!transform.any_op) -> !transform.any_op
    %launch = transform.gpu.map_forall_to_blocks %buffered {generate_gpu_launch}
      : (!transform.any_op) -> !transform.any_op
    %mapped = transform.gpu.map_nested_forall_to_threads %launch block_dims = [16, 8, 1]
      : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
