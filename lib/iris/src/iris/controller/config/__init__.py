"""Settings of a controller, from the cluster file and the command line.

Reading and validation of settings belong here. Nothing here starts anything.
"""
