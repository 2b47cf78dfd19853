"""Attempts of tasks: admitted, prepared, started, observed, ended, forgotten."""
