"""Which backends there are, by the specs people write in FRAY_CLIENT. Nothing is imported until it is asked for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from fray.client import Client


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend.

    Args:
        name: The spec without an address, and the scheme of the spec with one.
        module: Has `connect(address: str | None) -> Client`, which refuses an address it cannot use.
        forms: The specs it answers to, as shown to people.
        extra: The optional dependency of marin-fray that brings what it needs; None when that is always there.
    """

    name: str
    module: str
    forms: tuple[str, ...]
    extra: str | None = None


BACKENDS = (
    Backend("local", "fray.backends.local", ("local",)),
    Backend("ray", "fray.backends.ray", ("ray", "ray://host:port"), extra="ray"),
    Backend("iris", "fray.backends.iris", ("iris", "iris://host:port"), extra="iris"),
)


def known_specs() -> list[str]:
    """Every form of spec that `connect` accepts."""
    return [form for backend in BACKENDS for form in backend.forms]


def connect(spec: str) -> Client:
    """Make a client of the backend that `spec` names: `name` or `name://address`.

    Raises:
        InvalidRequest: An unknown spec (the message lists the known ones), or a backend that is not installed.
    """
    name, separator, address = spec.partition("://")
    backend = next((backend for backend in BACKENDS if backend.name == name), None)
    if backend is None or (separator and not address):
        raise InvalidRequest(f"fray client {spec!r} is not known; known: {', '.join(known_specs())}")
    try:
        module = importlib.import_module(backend.module)
    except ModuleNotFoundError as error:
        # Only a missing dependency is the user's to mend; a missing module of our own is our bug.
        if backend.extra is None or error.name is None or error.name.partition(".")[0] == "fray":
            raise
        raise InvalidRequest(
            f"fray client {spec!r} needs {error.name}, which is not installed: install marin-fray[{backend.extra}]"
        ) from error
    client: Client = module.connect(address or None)
    return client
