"""The common base of placeholders: a marker in their fields, and the refusal to become text."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import field
from typing import Any, ClassVar, Final, NoReturn

from rigging.errors import InvalidRequest

# A field of a versioned dataclass with this metadata is left out while it has its default, so that fields can be added
# to such classes without a new output path for everything that exists.
OMIT_DEFAULT_METADATA = "omit_from_version_when_default"

MARK: Final = "marin_placeholder"
"""A field of every placeholder. A dict with this key was made from a placeholder by `dataclasses.asdict` or
`model_dump`."""


def mark(what: str) -> Any:
    """Return the field MARK. `what` names the placeholder, with an article."""
    return field(default=what, init=False, repr=False, compare=False, metadata={OMIT_DEFAULT_METADATA: True})


class _Descriptions:
    """Track whether this process has created a placeholder's description. Until then, no text can contain one."""

    made = False


_DESCRIPTION: Final = re.compile(
    r"(ExecutorStep\(name=|InputName\(step=|OutputName\(name=|VersionedValue\(value=|MirroredValue\(value=)"
)


def note_description() -> None:
    """Record that a placeholder's description was created."""
    _Descriptions.made = True


def may_hold_description() -> bool:
    """Return whether texts may contain a description (see `described_in`)."""
    return _Descriptions.made


def described_in(text: str) -> bool:
    """Return whether a text contains the description of a placeholder, as in `f"{[step]}"` and `f"{step!r}"`."""
    return _Descriptions.made and _DESCRIPTION.search(text) is not None


class Described:
    """Base of classes that record the creation of their description, which may end up in a config's text."""

    __slots__ = ()

    def __repr__(self) -> str:
        note_description()
        shown = (item for item in dataclasses.fields(self) if item.repr)  # type: ignore[arg-type]
        return f"{type(self).__qualname__}({', '.join(f'{item.name}={getattr(self, item.name)!r}' for item in shown)})"


class NotText(Described):
    """Base of placeholders that refuse to become text, because their path is known only after instantiation."""

    __slots__ = ()

    _instead: ClassVar[str]
    """Advice: the expression to write instead of a text of the placeholder."""

    def _refuse(self, *ignored: object) -> NoReturn:
        del ignored
        raise InvalidRequest(
            f"{self!r} has no text yet (an f-string, str() or + would put this very description into it); write "
            f"{self._instead}"
        )

    def __str__(self) -> str:
        self._refuse()

    def __format__(self, spec: str) -> str:
        self._refuse(spec)

    def __add__(self, other: object) -> NoReturn:
        self._refuse(other)

    def __radd__(self, other: object) -> NoReturn:
        self._refuse(other)


def check_inside(path: str | None, what: str) -> None:
    """Refuse a path with a `..` part."""
    if path and ".." in path and ".." in path.split("/"):
        raise InvalidRequest(f"{what}({path!r}): a '..' part would leave the directory that the path is relative to")
