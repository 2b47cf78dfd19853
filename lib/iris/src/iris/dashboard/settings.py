"""The settings that the controller sends the process, as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the process, from `iris.controller.dashboard.process`. The repr hides secrets.

    Attributes:
        controller: The controller's address, "host:port".
        secret: The cluster's secret, in hex.
        key: Key that signs sessions, in hex. Sessions outlive this process.
        port: Port on loopback; 0 for any.
        ca_sha256: The authority of the controller; "" if connections are unencrypted.
        cluster_name: The name to show on the pages.
        task_pages_domain: The domain of tasks' pages, one name each; "" for none.
    """

    controller: str
    secret: str
    key: str
    port: int = 0
    ca_sha256: str = ""
    cluster_name: str = ""
    task_pages_domain: str = ""

    def __repr__(self) -> str:
        return f"Settings({self.controller!r}, port={self.port})"


def settings_of(line: str) -> Settings:
    """Parse the settings in a line. Raises InvalidRequest if they are invalid."""
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
