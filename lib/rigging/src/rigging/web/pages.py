"""Sets of pages that form an application, including sets that installed packages offer."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import BaseRoute

from rigging.errors import InvalidRequest
from rigging.web.login import Viewer

ENTRY_POINTS: Final = "rigging.web.pages"
_log = logging.getLogger(__name__)


def everybody(viewer: Viewer) -> bool:
    """Return True: every viewer may see the page."""
    del viewer
    return True


@dataclass(frozen=True, slots=True)
class NavItem:
    """A link at the top of every page.

    Attributes:
        title: The link's text.
        path: The link's target, from the server's root.
        viewers: Decides who sees the set. An application uses that of the page set.
        group: The group of links that it belongs to, such as `Cluster`.
    """

    title: str
    path: str
    viewers: Callable[[Viewer], bool] = everybody
    group: str = ""


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


@dataclass(frozen=True, slots=True)
class PageSet:
    """Pages that belong together.

    Attributes:
        name: A word. Templates are `NAME/FILE`, static files `/static/NAME/FILE`.
        routes: The pages, with paths from the server's root, which all sets of one application share.
        package: The Python package with the folders `templates` and `static`, or None.
        nav: Links at the top of every page.
        public_paths: Paths that need no login, such as `/health`.
        globals: Names for its templates, which only they should use.
        lifespan: Returns a context manager that is active while the application runs.
        viewers: Decides who may see the pages. Others are refused, and do not see links to them.
    """

    name: str
    routes: Sequence[BaseRoute]
    package: str | None = None
    nav: Sequence[NavItem] = ()
    public_paths: frozenset[str] = frozenset()
    globals: Mapping[str, Any] = field(default_factory=dict)
    lifespan: Callable[[], AbstractAsyncContextManager[None]] = _nothing
    viewers: Callable[[Viewer], bool] = everybody


PageFactory = Callable[[Mapping[str, str]], PageSet]


def offered_page_sets(options: Mapping[str, str], names: Iterable[str] | None = None) -> list[PageSet]:
    """Return the page sets that installed packages offer. Skip and log sets that cannot be created.

    A package offers a set by an entry point of the group `rigging.web.pages`: a function of `options` that returns a
    `PageSet`.

    Args:
        options: Options for all of them, e.g. `{"prefix": "gs://bucket"}`.
        names: Include only these; None for all.
    """
    wanted = None if names is None else set(names)
    found: list[PageSet] = []
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if wanted is not None and entry.name not in wanted:
            continue
        try:
            factory: PageFactory = entry.load()
            found.append(factory(options))
        except Exception:  # another package's code: these pages are worth more than that one
            _log.exception("pages %r of %s cannot be shown", entry.name, entry.value)
    return found


def check_names(sets: Sequence[PageSet]) -> None:
    """Raise InvalidRequest if two page sets share a name."""
    names = [pages.name for pages in sets]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"several page sets are named {twice[0]!r}; each needs a unique name")


def query_text(request: Request, name: str, longest: int = 4096) -> str:
    """Return a text parameter of a request's query; "" if it is missing.

    Args:
        request: The request.
        name: The parameter's name.
        longest: Maximum number of characters.

    Raises:
        InvalidRequest: The value is longer, or has a NUL character.
    """
    text = request.query_params.get(name, "")
    if len(text) > longest or "\0" in text:
        raise InvalidRequest(f"{name} {text[:40]!r}: at most {longest} characters are allowed, none of them NUL")
    return text
