"""`current_client` and `set_current_client`, under the module path that experiments import."""

from fray.context import chosen_client, current_client, set_current_client

__all__ = ["current_client", "set_current_client"]

# Old programs reset it in their tests.
_current_client_var = chosen_client
