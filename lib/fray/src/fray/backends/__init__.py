"""The backends for jobs and actors; `fray.registry` finds them by name.

Each backend has one folder. Shared code is in `common`; backends never import each other.
"""
