"""What to use where nothing is tuned: modes, stored results, inheritance."""
