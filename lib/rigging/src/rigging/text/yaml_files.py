"""Errors in YAML files with their location, and variables of the environment in their values."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rigging.errors import InvalidRequest
from rigging.redaction import redact_string


@contextlib.contextmanager
def yaml_errors(place: object) -> Iterator[None]:
    """Context manager for reading and parsing a YAML file. Errors become InvalidRequest with place and line.

    YAML's own messages quote the surrounding text, which may be secret, so it is omitted.

    Args:
        place: The file, or a description of the text and its source.
    """
    import yaml  # takes a while, and most commands read none

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        problem = redact_string(", ".join(filter(None, (error.context, error.problem))))
        raise InvalidRequest(f"cannot read {place}{line}: {problem}") from None
    except RecursionError:
        raise InvalidRequest(f"cannot read {place}: it is nested too deeply") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidRequest(f"cannot read {place}: {error}") from None


_VARIABLE: Final = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)\})")


class Filled(str):
    """A text whose variables were replaced. Its repr, which messages show, is that of the text in the file."""

    source: str

    def __new__(cls, value: str, source: str) -> "Filled":
        """Return the value, with its text in the file."""
        made = super().__new__(cls, value)
        made.source = source
        return made

    def __repr__(self) -> str:
        return repr(self.source)


def composed(*parts: object) -> str:
    """Return texts of a file in one; replaced variables of each are still not shown."""
    source = "".join(part.source if isinstance(part, Filled) else str(part) for part in parts)
    value = "".join(map(str, parts))
    return Filled(value, source) if any(isinstance(part, Filled) for part in parts) else value


def variables_of(text: str) -> tuple[str, ...]:
    """Return the names of the variables `${NAME}` in a text, in order."""
    return tuple(dict.fromkeys(match[1] for match in _VARIABLE.finditer(text) if match[1]))


def unset_variables(value: object) -> tuple[str, ...]:
    """Return the names of the variables that `fill_variables` left in a value, or in the values of it."""
    if isinstance(value, str):
        return () if isinstance(value, Filled) else variables_of(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return tuple(name for item in inner for name in unset_variables(item))


def fill_variables(content: Any, environ: Mapping[str, str]) -> Any:
    """Return a file's content with `${NAME}` replaced in its values, and `$$` by `$`. Keys stay.

    Replaced values are texts (`Filled`). A value with an unset variable stays unchanged.
    """
    done: dict[int, Any] = {}

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            if "$" not in value or any(name not in environ for name in variables_of(value)):
                return value
            return Filled(_VARIABLE.sub(lambda match: environ[match[1]] if match[1] else "$", value), value)
        if isinstance(value, dict | list) and id(value) not in done:  # an alias stands for the same content
            made: Any = value.copy()
            done[id(value)] = made
            for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
                made[key] = fill(item)
        return done.get(id(value), value)

    return fill(content)


def dump_yaml(content: object) -> str:
    """Return content as YAML. Replaced texts (`Filled`) are written with their variables."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(Filled, lambda dumper, value: dumper.represent_str(value.source))
    return yaml.dump(content, Dumper=Dumper, sort_keys=False, default_flow_style=False, width=120)
