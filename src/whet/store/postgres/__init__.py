"""A store that a team shares, on PostgreSQL. Imported when a `postgresql://` URL is opened."""
