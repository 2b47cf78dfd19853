"""Determines an attempt's mounts over shared directories; `views` and `attempts.directories` make them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class IsolationMode(StrEnum):
    """How tasks are kept from changing shared files, strongest first."""

    OVERLAY = "overlay"
    """Shared directories are read-only; an attempt's bundle and environment have a layer on top for its writes."""
    BIND = "bind"
    """Shared directories are read-only; an attempt has a copy of its bundle, mounted in the bundle's place."""
    COPY = "copy"
    """The host allows no mounts: an attempt has a copy of its bundle; environments are verified before each use."""


@dataclass(frozen=True, slots=True)
class Mount:
    """Shows an attempt other files at `target`.

    Args:
        source: The directory to show. With a layer it is never written; without one it belongs to the attempt, or is
            read-only if equal to `target`.
        layer: The directory to create for the attempt's writes.
        over: With a layer: a directory whose files cover those of `source`; also never written.
    """

    target: str
    source: str
    layer: str = ""
    over: str = ""

    def words(self) -> list[str]:
        """Return the mount as JSON."""
        return [self.target, self.source, self.layer, self.over]


def mounts_from(words: Sequence[Sequence[Any]]) -> tuple[Mount, ...]:
    """Return the mounts from JSON, the inverse of `Mount.words`. Raises TypeError, ValueError."""
    return tuple(Mount(*map(str, mount)) for mount in words)


def mounts_of(
    mode: IsolationMode,
    bundle: str,
    environment: str,
    own_directory: str,
    compiled: Callable[[str], str] = lambda tree: "",  # noqa: ARG005
) -> tuple[Mount, ...]:
    """Return the mounts of one attempt.

    Args:
        mode: How tasks are isolated on this host.
        bundle: The directory of the attempt's whole bundle; empty for none.
        environment: The attempt's virtual environment, unless it is already read-only for all tasks.
        own_directory: The attempt's directory; see `private_copy` for the copy of the bundle.
        compiled: Returns the directory with the compiled files of a source directory; empty if there is none.
    """
    match mode:
        case IsolationMode.OVERLAY:
            layers = ((bundle, bundle_layer(own_directory)), (environment, f"{own_directory}/environment"))
            return tuple(Mount(path, path, layer, compiled(path)) for path, layer in layers if path)
        case IsolationMode.BIND:
            copies = [Mount(bundle, private_copy(own_directory))] if bundle else []
            return (*copies, *([Mount(environment, environment)] if environment else []))
    return ()


def variables_of(mode: IsolationMode) -> dict[str, str]:
    """Return the environment variables of all tasks in this mode."""
    # What Python compiles on its way would count as a change of the environment.
    return {"PYTHONDONTWRITEBYTECODE": "1"} if mode is IsolationMode.COPY else {}


def bundle_layer(own_directory: str) -> str:
    """Return the directory of an attempt's layer over its bundle, if any."""
    return f"{own_directory}/bundle"


def private_copy(own_directory: str) -> str:
    """Return the directory of an attempt's copy of its bundle."""
    return f"{own_directory}/copy"
