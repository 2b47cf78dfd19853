"""The placeholders that may stand in a step's config: inputs, outputs, versioned and mirrored values."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, cast

from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from marin.execution.step import ExecutorStep

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

DEFAULT_MIRROR_BUDGET_GB = 10

# A field of a versioned dataclass with this metadata is left out while it has its default, so that fields can be added
# to such classes without a new output path for everything that exists.
OMIT_DEFAULT_METADATA = "omit_from_version_when_default"

MARK: Final = "marin_placeholder"
"""A field of every placeholder: a dict that has it is what `dataclasses.asdict` or `model_dump` made of one."""


def mark(what: str) -> Any:
    """The field MARK; `what` names the placeholder, with its article."""
    return field(default=what, init=False, repr=False, compare=False, metadata={OMIT_DEFAULT_METADATA: True})


class _Descriptions:
    """Whether a placeholder was described in this process: until then no text of a config can hold a description."""

    made = False


_DESCRIPTION: Final = re.compile(
    r"(ExecutorStep\(name=|InputName\(step=|OutputName\(name=|VersionedValue\(value=|MirroredValue\(value=)"
)


def note_description() -> None:
    """A placeholder's description is made."""
    _Descriptions.made = True


def may_hold_description() -> bool:
    """Whether texts are worth a look: see `described_in`."""
    return _Descriptions.made


def described_in(text: str) -> bool:
    """Whether a text has the description of a placeholder in it, as `f"{[step]}"` and `f"{step!r}"` make it."""
    return _Descriptions.made and _DESCRIPTION.search(text) is not None


class Described:
    """Notes that its description was made, which then may stand in a text of a config."""

    __slots__ = ()

    def __repr__(self) -> str:
        note_description()
        shown = (item for item in dataclasses.fields(self) if item.repr)  # type: ignore[arg-type]
        return f"{type(self).__qualname__}({', '.join(f'{item.name}={getattr(self, item.name)!r}' for item in shown)})"


class NotText(Described):
    """Refuses to become a text: the path that it stands for is known only when the config is instantiated."""

    __slots__ = ()

    def _instead(self) -> str:
        raise NotImplementedError  # pragma: no cover - every subclass says what to write

    def _refuse(self, *ignored: object) -> NoReturn:
        del ignored
        raise InvalidRequest(
            f"{self!r} has no text yet (an f-string, str() or + would put this very description into it); write "
            f"{self._instead()}"
        )

    def __str__(self) -> str:
        self._refuse()

    def __format__(self, spec: str) -> str:
        self._refuse(spec)

    def __add__(self, other: object) -> NoReturn:
        self._refuse(other)

    def __radd__(self, other: object) -> NoReturn:
        self._refuse(other)


if TYPE_CHECKING:
    # What a step's function sees where an input stands: configs declare such fields as `str`.
    _SeenAsText = str
else:

    class _SeenAsText:
        __slots__ = ()


def _check_inside(path: str | None, what: str) -> None:
    if path and ".." in path and ".." in path.split("/"):
        raise InvalidRequest(f"{what}({path!r}): a '..' part would leave the place that it is relative to")


@dataclass(frozen=True, slots=True, repr=False)
class InputName(NotText, _SeenAsText):
    """A path below another step's output, or (with `step=None`) a path below the prefix.

    To type checkers it is a `str`, which is what a step's function sees in its place; it has none of a text's methods.

    Attributes:
        step: The step whose output is meant; None for a hardcoded path.
        name: Path relative to that output (or to the prefix); None for the output itself.
        block_on_step: Whether the step that holds this input needs `step` to have run. A non-blocking input counts in
            the version, and its path is filled in, but it is neither run nor waited for.
    """

    step: ExecutorStep[Any] | None
    name: str | None
    block_on_step: bool = True
    marin_placeholder: str = mark("an input")

    def __post_init__(self) -> None:
        if self.step is not None and self.name is not None and (self.name.startswith("/") or "://" in self.name):
            raise InvalidRequest(f"{self.name!r}: an absolute path is not below the output of step {self.step.name!r}")
        is_fixed = self.step is None and self.name is not None and ("://" in self.name or self.name.startswith("/"))
        if not is_fixed:
            _check_inside(self.name, "hardcoded" if self.step is None else "input")

    def _instead(self) -> str:
        return 'input / "x" for a path below it'

    def cd(self, name: str) -> InputName:
        """A path below this one; a blocking input again, even when this one is not."""
        return InputName(self.step, os.path.join(self.name, name) if self.name else name)

    def __truediv__(self, name: str) -> InputName:
        return self.cd(name)

    @staticmethod
    def hardcoded(path: str) -> InputName:
        """A fixed path, relative to the prefix unless it is absolute or a URL; the path itself is its version."""
        return InputName(None, path)

    def nonblocking(self) -> InputName:
        """The same path, for a step that should neither cause this input to be made nor wait for it."""
        return replace(self, block_on_step=False)


@dataclass(frozen=True, slots=True, repr=False)
class OutputName(NotText):
    """A path below the output of the step that holds it; None for the output path itself.

    Raises:
        InvalidRequest: `name` would leave the output.
    """

    name: str | None = None
    marin_placeholder: str = mark("an output path")

    def __post_init__(self) -> None:
        if self.name is None:
            return
        if self.name.startswith("/") or "://" in self.name:
            raise InvalidRequest(f"this_output_path({self.name!r}): an absolute path is not below the step's output")
        _check_inside(self.name, "this_output_path")

    def _instead(self) -> str:
        return 'this_output_path("x") for a path below it'


THIS_OUTPUT_PATH = OutputName(None)


def this_output_path(name: str | None = None) -> str:
    """The output path of the step whose config this stands in, or `name` below it.

    Typed as the string that the step's function will see.
    """
    return cast(str, OutputName(name))


@dataclass(frozen=True, repr=False)  # no slots: they break `VersionedValue[T](...)` on frozen classes
class VersionedValue(Described, Generic[T_co]):
    """A value that is part of its step's version: another value, another output path."""

    value: T_co
    marin_placeholder: str = mark("a versioned value")


@dataclass(frozen=True, repr=False)  # no slots: they break `MirroredValue[T](...)` on frozen classes
class MirroredValue(Described, Generic[T_co]):
    """A path that is read through `mirror://`, copying at most `budget_gb` (2^30 bytes each) from other regions."""

    value: T_co
    budget_gb: float = DEFAULT_MIRROR_BUDGET_GB
    marin_placeholder: str = mark("a mirrored path")

    def __post_init__(self) -> None:
        if isinstance(self.value, MirroredValue):
            raise InvalidRequest(f"mirrored({self.value!r}): the value is mirrored already; give it one budget")
        if not 0 <= self.budget_gb < math.inf:
            raise InvalidRequest(f"mirrored({self.value!r}): budget_gb={self.budget_gb}: must be 0 or more, and finite")


def versioned(value: T) -> T:
    """Make `value` part of the step's version. Typed as `value`, which is what the step's function will see.

    Raises:
        InvalidRequest: `value` is versioned already.
    """
    if isinstance(value, VersionedValue):
        raise InvalidRequest(f"versioned({value!r}): the value is versioned already; write versioned({value.value!r})")
    return cast(T, VersionedValue(value))


def ensure_versioned(value: T) -> T:
    """`versioned(value)`, or `value` when it is versioned already."""
    return value if isinstance(value, VersionedValue) else versioned(value)


def unwrap_versioned_value(value: T) -> T:
    """The plain value of a versioned one; anything else as it is."""
    return cast(T, value.value) if isinstance(value, VersionedValue) else value


def mirrored(value: T, budget_gb: float = DEFAULT_MIRROR_BUDGET_GB) -> T:
    """Read the path through `mirror://`: copied into this region once, when it is in another one.

    Args:
        value: A path relative to the prefix, `versioned(path)`, or an input.
        budget_gb: The most that one step may copy between regions, in 2^30 bytes. Not part of the version.

    Raises:
        InvalidRequest: `value` is mirrored already, or `budget_gb` is below 0, or not finite.
    """
    return cast(T, MirroredValue(value, budget_gb))
