"""Who may still win, and who has won: the race, the duel and their statistics."""
