"""Views of a run while it runs, on a terminal and in a notebook. They are drawn by rich, which only they import.

Nothing here reads storage or makes decisions.
"""
