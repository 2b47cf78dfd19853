"""Harnesses that start a backend for tests, create clients, and check that nothing is left behind."""

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
    """One backend for a test session.

    Attributes:
        name: The name in `--fray-backend`.
        capabilities: The backend's declared capabilities.
    """

    name: ClassVar[str]
    capabilities: ClassVar[BackendCapabilities]

    @staticmethod
    def prepare() -> None:
        """Called when pytest is configured, before test modules are imported, if the backend is requested on the
        command line.
        """
        return

    @abstractmethod
    def start(self, state_dir: Path) -> None:
        """Start the backend. Write all its files below `state_dir`, an empty directory."""

    @abstractmethod
    def make_client(self) -> Client:
        """Create a client. The caller shuts it down."""

    @property
    @abstractmethod
    def spec(self) -> str:
        """The value of FRAY_CLIENT that selects this backend."""

    @property
    def cpus(self) -> int:
        """The processors of its largest machine. Defaults to this machine's."""
        return os.cpu_count() or 1

    @abstractmethod
    def leftovers(self) -> Sequence[str]:
        """Return descriptions of leftovers of shut-down clients: jobs, actors, processes, threads, files."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the backend and everything on it."""


def unknown_backend(name: str) -> str:
    """Return the error text for an unknown backend."""
    return f"fray backend {name!r} is not known; known: {', '.join(HARNESSES)}, or package.module:Class"


def load_harness(name: str) -> BackendHarness:
    """Create the harness of a known backend, or the one that `package.module:Class` names, without starting it.

    Raises:
        InvalidRequest: No backend has that name.
    """
    target = HARNESSES.get(name, name)
    module, separator, attribute = target.partition(":")
    if not separator:
        raise InvalidRequest(unknown_backend(name))
    harness = getattr(importlib.import_module(module), attribute)()
    if not isinstance(harness, BackendHarness):
        raise InvalidRequest(f"fray backend {name!r}: {target} is not a BackendHarness")
    return harness
