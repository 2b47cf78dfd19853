"""The machine that the worker runs on: what it offers, its address, its end."""
