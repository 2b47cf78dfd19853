"""The jobs of a cluster: save their files, and submit them again after a restart.

Operation of machines is in `nodes`.
"""
