"""The machines of a cluster: Google Cloud's, our own, and those that Ray has left behind."""
