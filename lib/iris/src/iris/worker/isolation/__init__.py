"""Keep one task's writes from the next: views of shared directories in mount namespaces, or private copies.

`plan` decides (pure), `views` mounts.
"""
