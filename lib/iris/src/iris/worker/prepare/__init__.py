"""Preparation of attempts: their code, their Python environment, their variables."""
