"""The in-process client under the module path that experiments import it from."""

from fray.backends.local import LocalClient

__all__ = ["LocalClient"]
