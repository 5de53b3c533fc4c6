"""What Triton compiles for a program: recorded, packed, made ready before the first request."""
