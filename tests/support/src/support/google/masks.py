"""Partial answers: the parameter `fields` of Google's APIs."""

import re
from typing import Any, Final

_TOKEN: Final = re.compile(r"[\w*]+|[(),/]")
Tree = dict[str, "Tree"]


def masked(body: Any, fields: str) -> Any:
    """Return the part of a body that `fields` names, like "nodes(name,labels),nextPageToken" or "items/*/name"."""
    tokens = _TOKEN.findall(fields)
    if "".join(tokens) != fields:
        raise ValueError(f"fields={fields!r}")
    return _pick(body, _read(tokens)) if fields else body


def _read(tokens: list[str]) -> Tree:
    """Return the tree of a list of fields, up to its end or a closing bracket."""
    tree: Tree = {}
    while tokens and tokens[0] != ")":
        name = tokens.pop(0)
        if name != ",":
            tree[name] = _read_inside(tokens)
    return tree


def _read_inside(tokens: list[str]) -> Tree:
    mark = tokens.pop(0) if tokens[:1] in (["/"], ["("]) else ""
    if mark == "/":
        return {tokens.pop(0): _read_inside(tokens)}
    inner = _read(tokens) if mark else {}
    del tokens[: bool(mark)]
    return inner


def _pick(body: Any, tree: Tree) -> Any:
    if not tree:
        return body
    if isinstance(body, list):
        return [_pick(each, tree) for each in body]
    if not isinstance(body, dict):
        return body
    return {
        key: _pick(value, tree.get(key, tree.get("*", {}))) for key, value in body.items() if {key, "*"} & tree.keys()
    }
