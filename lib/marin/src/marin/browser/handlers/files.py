"""Directories and files below the prefix: listings, previews, downloads."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from marin.browser.follow import start_of_id
from marin.browser.listing import Entry
from marin.browser.previews.make import MOST_SHOWN, make_preview
from marin.browser.previews.preview import MEDIA_TYPES, Kind, Preview
from marin.browser.site import Site, address, asked_path
from rigging.errors import InvalidRequest
from rigging.web.context import is_fragment, render
from rigging.web.pages import query_text
from rigging.web.paging import Page, asked_page, page_number
from rigging.web.security import SANDBOX_POLICY

_PAGE = 100


def files_page(site: Site, request: Request) -> Response:
    """Show a directory, or a file with its preview."""
    name = asked_path(request).strip("/")
    entry = site.outputs.entry(name)
    if not entry.is_dir:
        return _file_page(site, request, entry)
    text = query_text(request, "q", 300)
    found = site.outputs.entries(name).matching(text)
    number = page_number(asked_page(request.query_params.get("page")), len(found), _PAGE)
    rows = found.part((number - 1) * _PAGE, number * _PAGE)
    return render(
        request,
        "marin/files_table.html" if is_fragment(request) else "marin/files.html",
        name=name,
        prefix=site.outputs.root,
        parents=_parents(name),
        page=Page(rows, number, len(found), _PAGE),
        query=text,
        address=address,
        link=lambda number: address("files", path=name, q=text, page=number),
    )


def _file_page(site: Site, request: Request, entry: Entry) -> Response:
    start = start_of_id(request.query_params.get("start"), 0)
    problem = None
    try:
        preview = make_preview(site.outputs, entry, start)
    except InvalidRequest as error:
        preview, problem = Preview(Kind.BINARY), str(error)
    return render(
        request,
        "marin/file.html",
        entry=entry,
        prefix=site.outputs.root,
        parents=_parents(entry.name),
        preview=preview,
        problem=problem,
        start=start,
        address=address,
    )


def _parents(name: str) -> list[tuple[str, str]]:
    """Return the last part and the full name of each parent directory of a name."""
    parts = name.split("/")[:-1] if name else []
    return [(part, "/".join(parts[: number + 1])) for number, part in enumerate(parts)]


def raw_file(site: Site, request: Request) -> Response:
    """Send a file: inline, in a sandbox, if a page shows it in a frame or as an image; otherwise as a download."""
    name = asked_path(request)
    entry = site.outputs.entry(name)
    if entry.is_dir:
        raise InvalidRequest(f"path {name[:100]!r} is a directory")
    kind = MEDIA_TYPES.get(name.lower().rpartition(".")[2])
    is_shown = kind is not None and request.query_params.get("show") == "1" and entry.size <= MOST_SHOWN
    site.outputs.open(name).close()  # what may not be read is refused before the answer begins
    headers = {"content-security-policy": SANDBOX_POLICY}
    if not is_shown:
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(entry.base, safe='', errors='replace')}"
    return StreamingResponse(
        site.outputs.chunks(name), media_type=kind if is_shown else "application/octet-stream", headers=headers
    )
