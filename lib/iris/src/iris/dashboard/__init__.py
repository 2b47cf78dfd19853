"""The cluster's web pages, served by a separate process that is a client of the controller. Requires the extra
`dashboard`.

Pages and their queries belong here. They change the cluster only through the controller's RPCs.
"""
