"""Views of a run while it runs, on a terminal and in a notebook, drawn by rich, which is imported only for them.

Nothing here reads storage or decides.
"""
