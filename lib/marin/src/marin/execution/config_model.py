"""The base of pydantic configs whose fields take placeholders. It needs pydantic 2."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError, ValidatorFunctionWrapHandler, field_validator

from marin.execution.config.hidden import find_inside
from marin.execution.config.values import VersionedValue, versioned
from marin.execution.config.visitor import PLACEHOLDERS

__all__ = ["ConfigModel"]


class ConfigModel(BaseModel):
    """A pydantic model whose fields take placeholders, whatever their types.

    A versioned value is validated like the value itself. Paths are not validated, because they are known only when the
    step runs. Validators of a field see no placeholders; validators of the model do.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The validator that is defined last is the outermost. A parent's name would have the parent's place.
        name = f"accept_placeholders_{cls.__module__}_{cls.__qualname__}"
        setattr(cls, name, field_validator("*", mode="wrap")(accept_placeholders))


def accept_placeholders(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Return a field's validated value, or the original if it is or contains a placeholder that validation refuses."""
    if isinstance(value, VersionedValue):
        inner = accept_placeholders(value.value, validate)
        return value if inner is value.value else versioned(inner)
    if type(value) in PLACEHOLDERS:
        return value
    try:
        return validate(value)
    except ValidationError:
        if find_inside(value, lambda part: type(part) in PLACEHOLDERS) is None:
            raise
        return value
