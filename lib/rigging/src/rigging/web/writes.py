"""Requests that change something. They require the session's form token and writable pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rigging.errors import Denied, InvalidRequest
from rigging.web.context import may_write, session_of, web_of

_MOST_BYTES: Final = 1 << 20
_MOST_FIELDS: Final = 200
TOKEN_FIELD: Final = "form_token"
TOKEN_HEADER: Final = "x-form-token"

Handler = Callable[[Request, dict[str, str]], Awaitable[Response]]


def write_route(path: str, handler: Handler, *, needs_writable: bool = True, name: str | None = None) -> Route:
    """Return a route for POST requests of this server's forms.

    Args:
        path: The path.
        handler: Answers the request, given the request and the form's fields.
        needs_writable: If False, the request only changes the viewer's own session.
        name: The route's name.
    """

    async def checked(request: Request) -> Response:
        form = await read_form(request)
        session = session_of(request)
        token = request.headers.get(TOKEN_HEADER) or form.pop(TOKEN_FIELD, "")
        if session is None or not web_of(request).sessions.is_form_token(session, token):
            raise Denied("the form belongs to another session; reload the page")
        if needs_writable and not may_write(request):
            raise Denied("these pages are read-only here")
        return await handler(request, form)

    return Route(path, checked, methods=["POST"], name=name)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. If several share a name, the last wins.

    Raises:
        InvalidRequest: The form is too large, malformed or incomplete.
    """
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise InvalidRequest(f"the form is larger than {_MOST_BYTES} bytes")
    except ClientDisconnect:
        raise InvalidRequest("the connection broke off within the form") from None
    try:
        return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise InvalidRequest(f"the form cannot be read: {error}") from error
