"""A choice between implementations of one function: the parameter is the implementation.

Why it is so: docs/decisions/choices.md.
"""
