"""Runs, outputs and leases in storage: reading (`reading`) and interpretation (`deciding`).

`marin.cli` and `marin.browser` share this package. Nothing here runs a step.
"""
