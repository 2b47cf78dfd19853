"""Views of a run while it goes on, on a terminal and in a notebook, drawn by rich, which is imported only for them."""
