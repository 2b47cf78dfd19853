"""Kinds of values on the command line that click does not have; what cannot be is refused before anything is done."""

import math
from pathlib import Path
from typing import Any, Final

import click

from rigging.errors import InvalidRequest
from rigging.quantities import MAX_COUNT, MAX_SECONDS, check_unit


class NumberRange(click.FloatRange):
    """A number in a range; unlike click's own never "nan"."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class Name(click.types.StringParamType):
    """Text that is not empty: left out it means something else than given as nothing."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = super().convert(value, param, ctx)
        if not text.strip():
            self.fail("it is empty; give a name, or leave the option out.", param, ctx)
        return text


class Directory(click.Path):
    """The path of a directory, which need not be there yet. Nothing at all is no path."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("it is empty; give a path, or leave the option out.", param, ctx)
        return super().convert(value, param, ctx)


class Size(click.types.StringParamType):
    """A size as people write it, as text."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            check_unit(value, param.name or "size" if param is not None else "size")
        except InvalidRequest as error:
            self.fail(str(error), param, ctx)
        return value


SIZE: Final = Size()
SECONDS: Final = NumberRange(min=0, min_open=True, max=MAX_SECONDS)
SECONDS_OR_ZERO: Final = NumberRange(min=0, max=MAX_SECONDS)
COUNT: Final = click.IntRange(min=1, max=MAX_COUNT)
NAME: Final = Name()
DIRECTORY: Final = Directory()
LISTED: Final = click.IntRange(min=1, max=10_000)
"""Jobs; the controller lists no more."""
