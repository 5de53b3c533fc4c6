"""The solver behind `Space`: counts, samples and lists the configs that satisfy its constraints."""
