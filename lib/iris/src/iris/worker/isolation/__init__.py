"""Protects tasks from each other's writes: views of shared directories in mount namespaces, or private copies.

`plan` decides (pure), `views` mounts.
"""
