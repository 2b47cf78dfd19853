"""The in-process client and its handles, under the module path that experiments import."""

from fray.backends.common.actors import RefHandle as LocalActorHandle
from fray.backends.common.actors import RefMethod as LocalActorMethod
from fray.backends.local import LocalClient
from fray.backends.local.job import LocalJob as LocalJobHandle

__all__ = ["LocalActorHandle", "LocalActorMethod", "LocalClient", "LocalJobHandle"]
