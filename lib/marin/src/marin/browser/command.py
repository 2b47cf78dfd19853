"""`marin browser`: serve the experiment pages of one storage root."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.applications import Starlette

from marin.browser.pages import pages_of
from marin.browser.site import BASE, Site
from rigging.filesystem.private import check_own_folder, load_or_create
from rigging.user import user_name
from rigging.web.app import create_app
from rigging.web.context import USUAL_COOKIE, WebSettings
from rigging.web.login import KEY_BYTES, Sessions, Viewer
from rigging.web.serving import LOOPBACK, Bound, bind, serve

PORT: Final = 8765
_HINT: Final = (
    "Open the link that `marin browser` printed. The link works once, within ten minutes. "
    "Press Enter in that terminal for a new link."
)


def browser_app(site: Site, bound: Bound, key: bytes | None) -> Starlette:
    """Return the application of `marin browser`.

    Args:
        site: The pages.
        bound: The listening socket.
        key: Signs sessions; None ends them with the process.
    """
    is_loopback = bound.host in (LOOPBACK, "localhost", "::1")
    settings = WebSettings(
        title="marin",
        allowed_hosts=frozenset() if is_loopback else frozenset({bound.host.lower(), socket.gethostname().lower()}),
        any_address=not is_loopback,
        login_hint=_HINT,
        cookie=f"{USUAL_COOKIE}-browser-{bound.port}",
        home=f"{BASE}/runs",
    )
    return create_app(settings, [pages_of(site)], sessions=Sessions(key))


def browse(site: Site, port: int, host: str, say: Callable[[str], object]) -> None:
    """Serve the pages until SIGINT or SIGTERM.

    Args:
        site: The pages.
        port: The requested port. If it is taken, a free one is used.
        host: The address to listen on.
        say: Prints a message for the user.
    """
    bound = bind(port, host)
    app = browser_app(site, bound, _key(say))
    if bound.note:
        say(bound.note)
    if bound.host not in (LOOPBACK, "localhost", "::1"):
        say(f"other machines can reach {bound.url}; the connection is not encrypted")

    def link() -> None:
        say(f"{site.outputs.root}: {bound.url}{app.state.web.login_path(Viewer(user_name()))}")

    link()
    if sys.stdin is not None and sys.stdin.isatty():
        threading.Thread(target=_links_on_enter, args=(link,), name="marin-browser-links", daemon=True).start()
    serve(app, bound, site.stop)


def _links_on_enter(link: Callable[[], None]) -> None:
    for _ in sys.stdin:
        link()


def _key(say: Callable[[str], object]) -> bytes | None:
    """Return the signing key of this user's sessions, so that they outlive the program."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "marin"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_own_folder(folder, "the folder", "remove others' access (chmod 700)")
        key = load_or_create(folder / "browser-key", lambda: os.urandom(KEY_BYTES), "the key of browser sessions")
    except (OSError, RuntimeError) as error:  # the latter: no home
        say(f"sessions end with this program: {error}")
        return None
    return key if len(key) == KEY_BYTES else None
