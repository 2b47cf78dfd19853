"""Whether the platform takes this host away: asked when the worker is told to end."""

import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final

PreemptionNotice = Callable[[], bool]
"""Whether the host is being taken away. May block for a second or two; called in a thread."""

_METADATA_URL: Final = "http://metadata.google.internal/computeMetadata/v1/instance/preempted"
_PATIENCE_S: Final = 1.5


def never() -> bool:
    """The notice of a platform that takes nothing away."""
    return False


def gce_notice(url: str = _METADATA_URL) -> bool:
    """What Compute Engine's metadata server says; a server that does not answer says no."""
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as reply:
            return bool(reply.read(16).strip().upper() == b"TRUE")
    except (OSError, urllib.error.URLError):
        return False
