"""Settings that the process gets from its controller, in one line of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Settings:
    """See `iris.controller.dashboard.process`, which writes them. The repr hides what is secret.

    Attributes:
        controller: Its address, "host:port".
        secret: The cluster's, in hex.
        key: Signs sessions, in hex: they outlive this process.
        port: On loopback; 0: any.
        ca_sha256: The authority of the controller; "": connections are not encrypted.
        cluster_name: Shown on the pages.
    """

    controller: str
    secret: str
    key: str
    port: int = 0
    ca_sha256: str = ""
    cluster_name: str = ""

    def __repr__(self) -> str:
        return f"Settings({self.controller!r}, port={self.port})"


def settings_of(line: str) -> Settings:
    """Return the settings in a line. Raises InvalidRequest for one that is none."""
    try:
        given = json.loads(line)
        known = {field.name for field in fields(Settings)}
        found = Settings(**{name: value for name, value in given.items() if name in known})
        bytes.fromhex(found.secret), bytes.fromhex(found.key)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidRequest(
            f"the dashboard reads its settings from its controller, as JSON ({type(error).__name__}); "
            "open it by `iris cluster dashboard`"
        ) from None
    return found
