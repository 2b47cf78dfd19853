"""The embedded cluster: a controller and a worker of this user, on this machine, that start and leave by themselves."""
