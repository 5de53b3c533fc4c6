"""Triton kernels: the drop-in for `@triton.autotune`, and the target behind it.

Why it is so: docs/decisions/triton.md.
"""
