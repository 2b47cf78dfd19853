"""Runs, outputs and leases as storage has them: read (`reading`) and interpreted (`deciding`).

Shared by `marin.cli` and `marin.browser`; nothing here runs a step.
"""
