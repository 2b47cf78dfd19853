"""The client of Iris under the names that programs written for fray's ancestor import."""

from fray.backends.common.actors import RefHandle as IrisActorHandle
from fray.backends.iris.actors import IrisActorGroup
from fray.backends.iris.client import FrayIrisClient

__all__ = ["FrayIrisClient", "IrisActorGroup", "IrisActorHandle"]
