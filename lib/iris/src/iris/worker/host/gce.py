"""The description of this host by Google's metadata server, and the phase that operators can read there."""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rigging.errors import InvalidRequest, MarinError
from rigging.gce_metadata import ask_metadata, metadata_host, put_guest_attribute

PHASE: Final = "iris/phase"
"""The guest attribute with the phase of a host's start: installing, starting, joined, or "failed: WHY"."""

_TPU_ENV: Final = re.compile(r"^([A-Z_]+): *'?([^'\n]*)'?$", re.MULTILINE)
_PATIENCE_S: Final = 5.0
_LONGEST: Final = 1000


@dataclass(frozen=True, slots=True)
class GceIdentity:
    """The description of a host.

    Args:
        slice_name: The name of its TPU node; of a virtual machine its own.
        number: Its number in the node; 0 for a virtual machine.
        zone: Its zone.
        tpu: The accelerator type of its node; empty without TPU.
    """

    slice_name: str
    number: int
    zone: str
    tpu: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """Return the attributes of the host's place."""
        return {"zone": self.zone, "region": self.zone.rpartition("-")[0]}


def read_identity(ask: Callable[[str], str] | None = None) -> GceIdentity:
    """Return what this host is.

    Args:
        ask: Returns the metadata server's answer to a key, or raises OSError; None for the real one.

    Raises:
        InvalidRequest: This is no virtual machine of Google's.
    """
    ask = ask or _ask
    try:
        name, zone = ask("name"), ask("zone").rpartition("/")[2]
        number, node, tpu = (
            _or_nothing(ask, f"attributes/{key}") for key in ("agent-worker-number", "instance-id", "accelerator-type")
        )
    except OSError as error:
        raise InvalidRequest(
            f"--platform gce, but no metadata server of Google's answers ({error}): leave the option out elsewhere"
        ) from None
    if not (number and tpu):
        told = dict(_TPU_ENV.findall(_or_nothing(ask, "attributes/tpu-env")))
        number, tpu = number or told.get("WORKER_ID", ""), tpu or told.get("ACCELERATOR_TYPE", "")
        node = node or told.get("NODE_ID", "")
    if not (number.isdecimal() and node and tpu):
        return GceIdentity(name, 0, zone)
    return GceIdentity(node, int(number), zone, tpu)


def own_ip() -> str:
    """Return this host's address in its network; empty elsewhere than at Google."""
    try:
        return ask_metadata(metadata_host(), "network-interfaces/0/ip", _PATIENCE_S).value
    except OSError:
        return ""


def tell_phase(words: str) -> None:
    """Set the guest attribute PHASE, if the machine has guest attributes."""
    with contextlib.suppress(OSError):
        put_guest_attribute(metadata_host(), PHASE, " ".join(words.split())[:_LONGEST], _PATIENCE_S)


@contextlib.contextmanager
def telling_failure() -> Iterator[None]:
    """Tell the phase "failed" with the words of an error, and raise it again."""
    try:
        yield
    except MarinError as error:
        tell_phase(f"failed: {error}")
        raise


def _ask(key: str) -> str:
    return ask_metadata(metadata_host(), key, _PATIENCE_S).value


def _or_nothing(ask: Callable[[str], str], key: str) -> str:
    try:
        return ask(key)
    except FileNotFoundError:
        return ""
