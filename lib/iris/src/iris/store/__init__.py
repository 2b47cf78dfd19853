"""The controller's durable state in one SQLite file; the only package that speaks SQL."""
