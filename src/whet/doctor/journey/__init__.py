"""From Python to machine code: what torch made of this model, step by step."""
