"""The ways to run jobs and actors; `fray.registry` finds them by name."""
