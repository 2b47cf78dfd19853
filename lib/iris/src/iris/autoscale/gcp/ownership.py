"""The label on all that a cluster has at Google, from its name and a random id stored with its state."""

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from rigging.distributed_lock import lease
from rigging.errors import InvalidRequest
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic

OWNER_LABEL: Final = "iris-cluster"
GROUP_LABEL: Final = "iris-group"
ROLE_LABEL: Final = "iris-role"
CONTROLLER_ROLE: Final = "controller"
_ID: Final = re.compile(r"[a-z0-9]{8,20}")
_LABEL_LETTERS: Final = 63
_WAIT_S: Final = 30.0


@dataclass(frozen=True)
class Owner:
    """The cluster that owns machines at Google.

    Args:
        cluster: Its name, or the file's `label_prefix`. id: Its random id (`cluster_id`).
    """

    cluster: str
    id: str

    @cached_property
    def label(self) -> str:
        """Return the value of OWNER_LABEL."""
        return f"{label_value(self.cluster)[: _LABEL_LETTERS - 1 - len(self.id)]}-{self.id}"

    def owns(self, labels: Mapping[str, str]) -> bool:
        """Return whether something with these labels is this cluster's, under this name or an earlier one."""
        return labels.get(OWNER_LABEL, "").rpartition("-")[2] == self.id

    def labels(self, **others: str) -> dict[str, str]:
        """Return the labels of something that this cluster makes."""
        return {OWNER_LABEL: self.label, **others}


def label_value(text: str) -> str:
    """Return a text as a label's value: at most 63 of a-z, 0-9, _ and -."""
    return re.sub(r"[^-_a-z0-9]", "-", text.lower())[:_LABEL_LETTERS]


def cluster_id(state_url: str, make: Callable[[], str] = lambda: secrets.token_hex(6)) -> str:
    """Return the id stored as `cluster-id` in a state directory; the first call of all stores one. Blocks.

    Args:
        state_url: The cluster's `remote_state_dir`; its state directory if it has none.
        make: Returns a new random id.

    Raises:
        InvalidRequest: The file has no id.
    """
    url = f"{state_url.rstrip('/')}/cluster-id"
    found = read_bytes_or_none(url)
    if found is None:
        with lease(f"{url}.lock", wait_seconds=_WAIT_S):  # two commands at once agree on one id
            found = read_bytes_or_none(url)
            if found is None:
                found = make().encode()
                write_bytes_atomic(url, found, durable=True)
    text = found.decode("ascii", "replace").strip()
    if not _ID.fullmatch(text):
        raise InvalidRequest(
            f"{url}: {text[:40]!r} is no cluster id: restore the file from a backup; machines bear its id"
        )
    return text
