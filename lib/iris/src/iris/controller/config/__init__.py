"""Settings of a controller: from the cluster's config file and the command line."""
