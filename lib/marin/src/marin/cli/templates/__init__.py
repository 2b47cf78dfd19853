"""Projects that `marin init` makes: one module a template, which becomes `experiments/first.py`.

Each has `steps`, which its test runs with a client of its own. Nothing here is imported by marin.
"""
