"""Decisions without any storage: names and states of runs, differences, the graph, garbage."""
