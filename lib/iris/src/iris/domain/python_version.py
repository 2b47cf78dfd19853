"""Requested Python versions: "3.12", "3.12.4", or specifiers such as ">=3.11,<3.13"."""

import re
from typing import Final

_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+){0,2}")
_CLAUSE: Final = re.compile(r"(===?|~=|!=|[<>]=?)\s*([0-9]+(?:\.[0-9]+)*)[a-z0-9]*(\.\*)?")


def is_python_request(text: str) -> bool:
    """Return whether `text` is a version or version specifiers. Other texts might act as an option or a path for uv."""
    return bool(_VERSION.fullmatch(text) or _clauses(text))


def fits(version: str, request: str) -> bool:
    """Return whether Python `version` ("3.12.4") satisfies `request`. An empty request accepts any."""
    if not request:
        return True
    if _VERSION.fullmatch(request):
        return f"{version}.".startswith(f"{request}.")
    have = _parts(version)
    return all(_meets(have, operator, wanted, wild) for operator, wanted, wild in _clauses(request))


def minor(version: str) -> str:
    """Return "3.12" for "3.12.4"."""
    return ".".join(version.split(".")[:2])


def _clauses(text: str) -> list[tuple[str, tuple[int, ...], bool]]:
    """Return the clauses of specifiers; none if one of them is invalid."""
    found = []
    for clause in (part.strip() for part in text.split(",")):
        match = _CLAUSE.fullmatch(clause)
        if match is not None:
            found.append((match[1], _parts(match[2]), bool(match[3])))
        elif clause:
            return []
    return found


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version.partition("+")[0])[:3])


def _meets(have: tuple[int, ...], operator: str, wanted: tuple[int, ...], wild: bool) -> bool:
    full = wanted + (0,) * (3 - len(wanted))
    same = have[: len(wanted)] == wanted if wild else have == full
    match operator:
        case "==" | "===":
            return same
        case "!=":
            return not same
        case ">=":
            return have >= full
        case ">":
            return have > full
        case "<=":
            return have <= full
        case "<":
            return have < full
        case _:  # "~=": at least that, and equal but for the last part given
            return have >= full and have[: len(wanted) - 1] == wanted[:-1]
