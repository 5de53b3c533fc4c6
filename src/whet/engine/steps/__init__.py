"""One run, step by step: explore, build, first samples, race, duel, record."""
