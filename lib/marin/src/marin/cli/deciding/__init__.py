"""What the commands decide, without storage: states of runs, differences, layouts, what may be removed."""
