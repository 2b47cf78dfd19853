"""Settings of a controller, from the cluster file and the command line.

Here belongs reading and checking settings; nothing here starts anything.
"""
