"""The templates of all page sets in one environment, and addresses of static files with their digests."""

from __future__ import annotations

import datetime
import functools
import hashlib
import logging
import re
import time
from collections.abc import Sequence
from importlib import resources
from typing import Final

import jinja2

from rigging.errors import NotFound
from rigging.text.printable import printable_line
from rigging.text.quantities import format_size
from rigging.text.tables import duration
from rigging.web.pages import PageSet

_log = logging.getLogger(__name__)
BASE: Final = "web"
_TYPES: Final = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "png": "image/png"}


class StaticFiles:
    """The static files of page sets, read once. Each file's address changes with its content.

    Args:
        packages: The Python package of each set with static files.
    """

    def __init__(self, packages: dict[str, str]) -> None:
        self._packages = packages

    def path(self, name: str) -> str:
        """Return the address of a file `SET/FILE`, which browsers may cache forever."""
        return f"/static/{name}?v={hashlib.sha256(self.read(name)[0]).hexdigest()[:12]}"

    @functools.cache  # noqa: B019 one object for the life of the process
    def read(self, name: str) -> tuple[bytes, str]:
        """Return a file's content and its media type.

        Raises:
            NotFound: The file does not exist.
        """
        owner, _, file = name.partition("/")
        kind = _TYPES.get(file.rpartition(".")[2])
        if owner in self._packages and kind is not None and re.fullmatch(r"[\w.-]+", file, re.ASCII):
            found = resources.files(self._packages[owner]).joinpath("static", file)
            if found.is_file():
                return found.read_bytes(), kind
        raise NotFound(f"no static file {name[:100]!r}")


def make_environment(sets: Sequence[PageSet], static: StaticFiles) -> jinja2.Environment:
    """Return an environment with the base templates and those of the page sets. All output is escaped.

    Args:
        sets: The page sets.
        static: The static files.
    """
    packages = static_packages(sets)
    environment = jinja2.Environment(
        loader=jinja2.PrefixLoader(
            {name: jinja2.PackageLoader(package, "templates") for name, package in packages.items()}
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        size=_size, duration=duration, moment=moment, count=count, line=printable_line, ago=ago, iso=_iso, zone=_zone
    )
    environment.globals["static"] = static.path
    for pages in sets:
        environment.globals.update(pages.globals)
    return environment


def load_templates(environment: jinja2.Environment) -> None:
    """Compile all templates in advance. Log templates that cannot be compiled."""
    for name in environment.list_templates():
        try:
            environment.get_template(name)
        except jinja2.TemplateError:
            _log.exception("template %s cannot be compiled", name)


def static_packages(sets: Sequence[PageSet]) -> dict[str, str]:
    """Return the packages with templates and static files, by the names of their sets."""
    return {BASE: "rigging.web", **{pages.name: pages.package for pages in sets if pages.package is not None}}


def _size(value: int | None) -> str:
    return "–" if value is None else format_size(value)


def count(value: int | None) -> str:
    """Return a number with thousands separators; "–" for None."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def moment(value: float | None) -> str:
    """Return a readable time in the server's time zone; "–" for None.

    Args:
        value: Seconds since the epoch.
    """
    if value is None:
        return "–"
    try:
        return datetime.datetime.fromtimestamp(value).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "–"


_AGO: Final = ((86400 * 365, "y"), (86400 * 30, "mo"), (86400, "d"), (3600, "h"), (60, "min"))


def ago(value: float | None, now: float | None = None) -> str:
    """Return how long ago a time was: `3 min ago`; "just now" for the last minute and the future, "–" for None.

    Args:
        value: Seconds since the epoch.
        now: The current time; None for the clock's.
    """
    if value is None:
        return "–"
    seconds = (time.time() if now is None else now) - value
    found = next(((size, word) for size, word in _AGO if seconds >= size), None)
    return "just now" if found is None else f"{int(seconds // found[0])} {found[1]} ago"


def _iso(value: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(value, datetime.UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return ""


def _zone(value: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(value).astimezone().tzname() or ""
    except (OverflowError, ValueError, OSError):
        return ""
