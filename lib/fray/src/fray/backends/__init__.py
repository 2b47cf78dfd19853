"""Ways to run jobs and actors; `fray.registry` finds them by name.

One folder a backend. What several backends need goes to `common`; backends never import each other.
"""
