"""`current_client` and `set_current_client` under the module path that experiments import them from."""

from fray.context import current_client, set_current_client

__all__ = ["current_client", "set_current_client"]
