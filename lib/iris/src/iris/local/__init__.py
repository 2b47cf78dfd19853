"""The embedded cluster: a controller and a worker of this user on this machine, started on demand.

Here belong processes, locks and files of the local cluster; cluster behaviour is the controller's.
"""
