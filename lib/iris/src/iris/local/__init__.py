"""The embedded cluster: a controller and a worker of this user on this machine, started on demand.

The processes, locks and files of the local cluster belong here.
"""
