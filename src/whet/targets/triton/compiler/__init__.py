"""What a kernel is made of, and how its configs are compiled."""
