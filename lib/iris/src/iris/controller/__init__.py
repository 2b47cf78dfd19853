"""The controller of a cluster; `app` puts it together."""
