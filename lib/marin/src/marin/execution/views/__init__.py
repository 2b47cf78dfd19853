"""Live views of a run, on a terminal and in a notebook. Only this package imports rich.

Nothing here reads storage or makes decisions.
"""
