"""What the controller must not lose, in one SQLite file; the only package that speaks SQL."""
