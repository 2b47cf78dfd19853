"""Runs in notebooks: their progress as HTML, and short errors."""
