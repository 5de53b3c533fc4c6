"""A measuring process that imports neither torch nor Triton: it starts in a fraction of a second.

For calls that are plain: tensors and numbers, nothing around a launch, and a binary that needs
nothing beside them.
"""
