"""The policy file: settings for single kernels, written by those who use them."""
