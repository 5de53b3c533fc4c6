"""Kernels that are tuned without the program they belong to."""
