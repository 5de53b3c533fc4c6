"""The nouns. Frozen, versioned, and importing nothing else of ours."""
