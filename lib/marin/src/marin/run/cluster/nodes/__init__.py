"""The machines of a cluster: Google Cloud's, local ones, and Ray's leftovers.

Only this folder calls Google Cloud. Jobs are in `jobs`.
"""
