"""Settings of a controller, from the cluster file and the command line.

Only reading and validation of settings belong here.
"""
