"""The cluster's pages in a browser: a process beside the controller, a client of it. Needs the extra `dashboard`."""
