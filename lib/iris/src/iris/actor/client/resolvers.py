"""Locations of actors in the form of iris's predecessor: a table, or a controller's address."""

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from iris.client.client import IrisClient
from rigging.errors import Denied, InvalidRequest, MarinError, NotFound
from rigging.filesystem.private import load_or_create

_KEY_BYTES: Final = 32


class FixedResolver:
    """Actors at known addresses: outside of jobs, this user's servers on this machine; inside a job, servers of this
    user's jobs.

    Args:
        endpoints: One or several addresses ("host:port" or a URL) for each name.

    Raises:
        InvalidRequest: An address is invalid or missing.
    """

    def __init__(self, endpoints: Mapping[str, str | Sequence[str]]) -> None:
        self._addresses = {
            name: [_address_of(name, each) for each in ([given] if isinstance(given, str) else given)]
            for name, given in endpoints.items()
        }
        bare = [name for name, found in self._addresses.items() if not found]
        if bare:
            raise InvalidRequest(f"actor {bare[0]!r} has no address; give one (host:port), or several")

    def addresses(self, name: str) -> list[str]:
        """Return the addresses of a name. Raise NotFound."""
        found = self._addresses.get(name)
        if not found:
            raise NotFound(f"no actor {name!r} in this resolver; it has {', '.join(self._addresses) or 'none'}")
        return found


class ProxyResolver:
    """The actors of a cluster, found through its controller.

    Args:
        controller_url: The controller's address.
    """

    def __init__(self, controller_url: str) -> None:
        self.client = IrisClient.remote(bare_address(controller_url))


def _address_of(name: str, url: str) -> str:
    address = bare_address(url)
    host, _, port = address.rpartition(":")
    if (
        not host
        or not port.isdecimal()
        or not 0 < int(port) < 65536
        or any(each in "/@" or each.isspace() for each in host)
    ):
        raise InvalidRequest(f"actor {name!r}: its address {url!r} must be host:port, e.g. 127.0.0.1:7077")
    return address


def bare_address(url: str) -> str:
    """Return the "host:port" of a URL."""
    return url.rpartition("://")[2].rstrip("/")


def machine_key(environ: Mapping[str, str] | None = None) -> bytes:
    """Return the key with which this user's actors and callers authenticate each other on this machine, outside of
    jobs.

    The key is in a file that only this user can read, created on first use: $XDG_STATE_HOME/iris/actor-key. The key
    allows sending pickles, so a file that others could have written is refused.

    Args:
        environ: The variables; None for this process's.

    Raises:
        Denied: Another user owns the file, or can read or write it.
        MarinError: The file is not a valid key, or cannot be created.
    """
    variables = os.environ if environ is None else environ
    place = Path(variables.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")) / "iris" / "actor-key"
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = load_or_create(place, lambda: secrets.token_bytes(_KEY_BYTES), "the key of actors")
    except Denied as denied:
        raise Denied(f"{denied}; or set XDG_STATE_HOME to a directory of your own") from None
    except OSError as error:
        raise MarinError(f"cannot read or make the key of actors {place}: {error.strerror or error}") from error
    if len(key) != _KEY_BYTES:
        raise MarinError(f"the key of actors {place} is damaged: expected {_KEY_BYTES} bytes; remove it")
    return key
