"""The Iris client under the names that programs for fray's predecessor import."""

from fray.backends.common.actors import RefHandle as IrisActorHandle
from fray.backends.iris.actors import IrisActorGroup
from fray.backends.iris.client import FrayIrisClient

__all__ = ["FrayIrisClient", "IrisActorGroup", "IrisActorHandle"]
