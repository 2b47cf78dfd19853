"""Interpretation of records: names and states of runs, differences, the graph, garbage.

Pure, without access to storage.
"""
