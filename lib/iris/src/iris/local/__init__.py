"""The embedded cluster: a controller and a worker of this user on this machine, started on demand.

For the processes, locks and files of the local cluster; the controller implements the cluster's behaviour.
"""
