"""What a kernel is made of, and how its configs are compiled.

Why it is so: docs/decisions/triton-builds.md.
"""
