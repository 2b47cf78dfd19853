"""The machines of a cluster: Google Cloud's, local ones, and leftovers of Ray.

Only this folder calls Google Cloud; jobs are `jobs`.
"""
