"""Backends by their FRAY_CLIENT specs. Backends are imported on first use.

Other packages add backends by an entry point of the group `fray.backends`: its name is the spec's scheme, and its value
a module with `connect(address: str | None) -> Client`.
"""

import importlib
import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from fray.protocols import Client
from rigging.errors import InvalidRequest
from rigging.extras import install_extra


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend.

    Args:
        name: The spec without an address, and the scheme of a spec with one.
        module: A module with `connect(address: str | None) -> Client`, which refuses invalid addresses.
        forms: The forms of its specs, for messages.
        extra: The extra of marin-fray with its dependencies; None if it needs none.
        needs: The top-level package that `extra` installs.
        program: A program that must be on PATH.
    """

    name: str
    module: str
    forms: tuple[str, ...]
    extra: str | None = None
    needs: str | None = None
    program: str | None = None

    def missing(self) -> str | None:
        """Return why the backend cannot be used in this environment, and the remedy; None if it can be used."""
        if self.program is not None and shutil.which(self.program) is None:
            return f"{self.program} is not on PATH"
        if self.needs is None or self.extra is None or importlib.util.find_spec(self.needs) is not None:
            return None
        return f"{self.needs} is not installed: {install_extra(self.extra, 'marin-fray')}"


ENTRY_POINTS = "fray.backends"

BACKENDS = (
    Backend("local", "fray.backends.local", ("local", "local://?processes=1")),
    Backend("ray", "fray.backends.ray", ("ray", "ray://host:port"), extra="ray", needs="ray"),
    Backend("iris", "fray.backends.iris", ("iris", "iris://host:port"), extra="iris", needs="iris"),
    Backend("slurm", "fray.backends.slurm", ("slurm", "slurm://PARTITION?account=NAME"), program="sbatch"),
)


def known_backends() -> list[Backend]:
    """Return fray's backends, then those of other installed packages by name."""
    # Reading the metadata of all that is installed takes a while, and the common specs do not need it.
    from importlib.metadata import entry_points

    ours = {backend.name for backend in BACKENDS}
    others = {point.name: point.value for point in entry_points(group=ENTRY_POINTS) if point.name not in ours}
    found = [Backend(name, module, (name, f"{name}://...")) for name, module in sorted(others.items())]
    return [*BACKENDS, *found]


def known_specs() -> list[str]:
    """Return every form of spec that `connect` accepts."""
    return [form for backend in known_backends() for form in backend.forms]


def connect(spec: str) -> Client:
    """Create a client of the backend that `spec` names: `name` or `name://address`.

    Raises:
        InvalidRequest: The spec is unknown (the message lists the known ones), or the backend is not installed.
    """
    name, separator, address = spec.partition("://")
    backend = _find(name, BACKENDS) or _find(name, known_backends())
    if backend is None or (separator and not address):
        raise InvalidRequest(f"fray client {spec!r} is not known; known: {', '.join(known_specs())}")
    try:
        module = importlib.import_module(backend.module)
    except ModuleNotFoundError as error:
        # Only a missing dependency is the user's to mend; a missing module of our own is our bug.
        if backend.extra is None or error.name is None or error.name.partition(".")[0] == "fray":
            raise
        raise InvalidRequest(
            f"fray client {spec!r} needs {error.name}, which is not installed: "
            f"{install_extra(backend.extra, 'marin-fray')}"
        ) from error
    client: Client = module.connect(address or None)
    return client


def load_backend(name: str) -> ModuleType:
    """Import the module of one of fray's own backends."""
    backend = _find(name, BACKENDS)
    assert backend is not None, f"{name!r} is a backend of ours"
    return importlib.import_module(backend.module)


def _find(name: str, backends: Sequence[Backend]) -> Backend | None:
    return next((backend for backend in backends if backend.name == name), None)
