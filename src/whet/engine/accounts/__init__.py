"""Where every second went."""
