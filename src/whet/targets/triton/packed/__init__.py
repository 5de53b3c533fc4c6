"""Kernels compiled without a device, and used elsewhere in place of compiling."""
