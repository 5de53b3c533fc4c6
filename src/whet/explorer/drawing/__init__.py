"""Drawings without a browser's help: SVG for notebooks, characters for terminals."""
