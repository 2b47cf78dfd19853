"""Where actors are, as older programs say it: by a table, or by a controller's address."""

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from iris.client.client import IrisClient
from rigging.errors import NotFound

_KEY_BYTES: Final = 32


class FixedResolver:
    """Actors at known addresses, of servers of this user on this machine; no cluster is needed.

    Args:
        endpoints: The address ("host:port", or a URL), or several, of each name.
    """

    def __init__(self, endpoints: Mapping[str, str | Sequence[str]]) -> None:
        self._addresses = {
            name: [bare_address(each) for each in ([given] if isinstance(given, str) else given)]
            for name, given in endpoints.items()
        }

    def addresses(self, name: str) -> list[str]:
        """Return the addresses of a name. Raises NotFound."""
        found = self._addresses.get(name)
        if not found:
            raise NotFound(f"no actor {name!r} in this resolver; it has {', '.join(self._addresses) or 'none'}")
        return found


class ProxyResolver:
    """The actors of a cluster, by its controller.

    Args:
        controller_url: Where the controller listens.
    """

    def __init__(self, controller_url: str) -> None:
        self.client = IrisClient.remote(bare_address(controller_url))


def bare_address(url: str) -> str:
    """Return "host:port" of a URL."""
    return url.rpartition("://")[2].rstrip("/")


def machine_key(environ: Mapping[str, str] | None = None) -> bytes:
    """Return the key by which actors and callers of this user know each other on this machine, outside of jobs.

    It is in a file that only this user can read, made when there is none.
    """
    variables = os.environ if environ is None else environ
    base = variables.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    place = Path(base) / "iris" / "actor-key"
    try:
        found = place.read_bytes()
    except FileNotFoundError:
        found = b""
    return found if len(found) == _KEY_BYTES else _new_key(place)


def _new_key(place: Path) -> bytes:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = place.with_name(f"{place.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            os.link(made, place)  # of two processes that begin at once, one makes it
        except FileExistsError:
            if len(place.read_bytes()) != _KEY_BYTES:
                os.replace(made, place)
                return place.read_bytes()
    finally:
        made.unlink(missing_ok=True)
    return place.read_bytes()
