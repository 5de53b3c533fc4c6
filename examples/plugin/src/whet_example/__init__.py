"""One part of each kind that whet takes from other packages; see `pyproject.toml`."""
