"""A choice between implementations of one function: the parameter is the implementation."""
