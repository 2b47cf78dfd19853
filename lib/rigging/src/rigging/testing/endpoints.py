"""The HTTP endpoints of an application, as an OpenAPI description: for tests, and for programs that try everything.

The parameters are those that the handlers' source names, so that a new one is tried without being listed anywhere.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from starlette.routing import BaseRoute, Route

_QUERY: Final = re.compile(r"""(?:query_text\(\s*request,\s*|query_params(?:\.get\(|\[)\s*)"(\w+)\"""")
_FORM: Final = re.compile(r"""(?:form|read_form\(request\)\))\.(?:get|pop)\(\s*"(\w+)\"""")
_HEADER: Final = re.compile(r"""headers\.get\(\s*"([\w-]+)\"""")
_PLACE: Final = re.compile(r"\{(\w+)(?::\w+)?\}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path and a method that are served.

    Attributes:
        path: As the route has it, such as `/static/{name:path}`.
        method: In capitals.
        query: Names of parameters of its query.
        form: Names of fields of its form.
        headers: Names of headers that it reads.
    """

    path: str
    method: str
    query: frozenset[str]
    form: frozenset[str]
    headers: frozenset[str]


def endpoints_of(routes: Iterable[BaseRoute], shared: Iterable[Callable[..., Any]] = ()) -> list[Endpoint]:
    """Return the endpoints of plain routes; of a handler all parameters count that its module names.

    Args:
        routes: The routes; mounted applications are left out.
        shared: Functions that look at every request: parameters that their modules name are those of all.
    """
    common = "\n".join(_module_source(function) for function in shared)
    found = []
    for route in routes:
        if isinstance(route, Route):
            text = common + "".join(_module_source(function) for function in _handlers(route.endpoint))
            for method in sorted(route.methods or ()):
                has_form = method in ("POST", "PUT", "PATCH")
                form = frozenset(_FORM.findall(text)) if has_form else frozenset[str]()
                query, headers = frozenset(_QUERY.findall(text)), frozenset(_HEADER.findall(text))
                found.append(Endpoint(route.path, method, query, form, headers))
    return found


def openapi_of(endpoints: Iterable[Endpoint], title: str) -> dict[str, Any]:
    """Return an OpenAPI 3 description: every parameter is a text, and none but those in paths is required.

    Args:
        endpoints: The endpoints.
        title: Of the description.
    """
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        parameters = [
            *({"name": name, "in": "path", "required": True} for name in _PLACE.findall(endpoint.path)),
            *({"name": name, "in": "query"} for name in sorted(endpoint.query)),
            *({"name": name, "in": "header"} for name in sorted(endpoint.headers)),
        ]
        operation: dict[str, Any] = {
            "parameters": [{**parameter, "schema": {"type": "string"}} for parameter in parameters],
            "responses": {"default": {"description": "an answer"}},
        }
        if endpoint.form:
            fields = {name: {"type": "string"} for name in sorted(endpoint.form)}
            schema = {"type": "object", "properties": fields}
            operation["requestBody"] = {"content": {"application/x-www-form-urlencoded": {"schema": schema}}}
        paths.setdefault(_PLACE.sub(r"{\1}", endpoint.path), {})[endpoint.method.lower()] = operation
    return {"openapi": "3.0.3", "info": {"title": title, "version": "0"}, "paths": paths}


def _handlers(handler: Any) -> list[Callable[..., Any]]:
    """Return a handler, and those that it wraps."""
    if isinstance(handler, functools.partial):
        return _handlers(handler.func)
    cells = getattr(handler, "__closure__", None) or ()
    inner = [cell.cell_contents for cell in cells if callable(cell.cell_contents)]
    return [handler, *(function for each in inner for function in _handlers(each))]


def _module_source(function: Callable[..., Any]) -> str:
    module = inspect.getmodule(inspect.unwrap(function))
    return "" if module is None else inspect.getsource(module)
