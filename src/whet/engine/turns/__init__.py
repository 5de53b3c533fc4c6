"""Processes of one host that tune the same for one store take turns."""
