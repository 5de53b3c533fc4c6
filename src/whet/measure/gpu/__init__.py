"""Timing on a GPU, through torch or through the driver alone."""
