"""Harnesses with which tests start a backend, get clients of it, and see that nothing is left."""

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from fray.capabilities import BackendCapabilities
from fray.protocols import Client
from rigging.errors import InvalidRequest

__all__ = ["HARNESSES", "BackendHarness", "load_harness"]

HARNESSES: dict[str, str] = {
    "local": "fray.testing.local_harness:LocalHarness",
    "local-admission": "fray.testing.local_harness:LocalAdmissionHarness",
    "local-process": "fray.testing.local_harness:LocalProcessHarness",
    "iris": "fray.testing.iris_harness:IrisHarness",
    "ray": "fray.testing.ray_harness:RayHarness",
}
"""The harnesses of the known backends, as `module:class`."""


class BackendHarness(ABC):
    """One backend for the length of a test session.

    Attributes:
        name: As in `--fray-backend`.
        capabilities: What the backend declares.
    """

    name: ClassVar[str]
    capabilities: ClassVar[BackendCapabilities]

    @staticmethod
    def prepare() -> None:
        """Called when pytest is configured, before any test module is imported, if the backend is asked for there."""
        return

    @abstractmethod
    def start(self, state_dir: Path) -> None:
        """Bring the backend up; all it keeps on disk goes below `state_dir`, an empty directory."""

    @abstractmethod
    def make_client(self) -> Client:
        """Make a client; the caller shuts it down."""

    @property
    @abstractmethod
    def spec(self) -> str:
        """The value of FRAY_CLIENT with which `current_client()` reaches this backend."""

    @property
    def cpus(self) -> int:
        """The processors of its largest machine; this machine's own, unless the backend is told otherwise."""
        return os.cpu_count() or 1

    @abstractmethod
    def leftovers(self) -> Sequence[str]:
        """Name the remains of clients that were shut down (jobs, actors, processes, threads, files), for people."""

    @abstractmethod
    def stop(self) -> None:
        """Take the backend down, with all that still runs on it."""


def unknown_backend(name: str) -> str:
    """The error text for an unknown backend."""
    return f"fray backend {name!r} is not known; known: {', '.join(HARNESSES)}, or package.module:Class"


def load_harness(name: str) -> BackendHarness:
    """Make the harness of a known backend, or the one that `package.module:Class` names; it is not started.

    Raises:
        InvalidRequest: There is none of that name.
    """
    target = HARNESSES.get(name, name)
    module, separator, attribute = target.partition(":")
    if not separator:
        raise InvalidRequest(unknown_backend(name))
    harness = getattr(importlib.import_module(module), attribute)()
    if not isinstance(harness, BackendHarness):
        raise InvalidRequest(f"fray backend {name!r}: {target} is not a BackendHarness")
    return harness
