"""The live view of a run on a terminal, by rich, which is imported only for it."""
