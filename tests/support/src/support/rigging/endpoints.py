"""The HTTP endpoints of an application, for exhaustive tests.

Parameters are found in the handlers' source, so that tests cover new ones automatically.
"""

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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route's path and method, with the names of the parameters it reads."""

    path: str
    method: str
    query: frozenset[str]
    form: frozenset[str]
    headers: frozenset[str]


def endpoints_of(routes: Iterable[BaseRoute], shared: Iterable[Callable[..., Any]] = ()) -> list[Endpoint]:
    """Return the endpoints of plain routes. All names in the handler's module and in `shared` count as parameters."""
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


def _handlers(handler: Any) -> list[Callable[..., Any]]:
    if isinstance(handler, functools.partial):
        return _handlers(handler.func)
    cells = getattr(handler, "__closure__", None) or ()
    inner = [cell.cell_contents for cell in cells if callable(cell.cell_contents)]
    return [handler, *(function for each in inner for function in _handlers(each))]


def _module_source(function: Callable[..., Any]) -> str:
    module = inspect.getmodule(inspect.unwrap(function))
    return "" if module is None else inspect.getsource(module)
