"""Protects tasks from each other's writes with mount namespaces or private copies.

`plan` determines the mounts (pure); `views` makes them.
"""
