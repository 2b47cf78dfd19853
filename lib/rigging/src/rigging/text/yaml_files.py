"""Errors in YAML files, with their location."""

import contextlib
from collections.abc import Iterator

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
