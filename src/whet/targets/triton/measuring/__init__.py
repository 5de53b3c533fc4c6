"""What is particular to measuring Triton kernels."""
