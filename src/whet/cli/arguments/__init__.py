"""From what was typed to what is meant."""
