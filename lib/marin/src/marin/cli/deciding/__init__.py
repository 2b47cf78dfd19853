"""Decisions of the commands, without storage: states of runs, differences, layouts, what may be removed."""
