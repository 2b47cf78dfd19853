"""Checks that some worker has a job's Python."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from iris.domain.python_version import fits, minor
from iris.domain.runtime import PackageSource, TaskRuntime

PYTHON_VERSIONS_ATTRIBUTE: Final = "python-versions"
"""The attribute with a worker's major.minor versions, separated by commas; a worker without it may have any."""


def explain_python(runtime: TaskRuntime, attributes: Sequence[Mapping[str, str]]) -> str | None:
    """Return why no worker has the Python of a job; None if a worker may have it.

    Args:
        runtime: The job's runtime.
        attributes: The attributes of each worker that could run the job.
    """
    # The submitter's own environment or interpreter may be on the same machine, wherever that keeps it.
    if not runtime.python or runtime.packages is PackageSource.SUBMITTER or runtime.interpreter:
        return None
    known = [found[PYTHON_VERSIONS_ATTRIBUTE] for found in attributes if PYTHON_VERSIONS_ATTRIBUTE in found]
    if not known or len(known) < len(attributes):
        return None
    versions = sorted({version for text in known for version in text.split(",")}, key=_numbers)
    if any(_may_fit(version, runtime.python) for version in versions):
        return None
    return f"needs Python {runtime.python}; the workers have {', '.join(versions)}"


def _may_fit(version: str, request: str) -> bool:
    """Return whether some patch release of "3.12" satisfies the request."""
    if re.fullmatch(r"[0-9.]+", request):
        return fits(version, minor(request))
    return any(fits(f"{version}.{patch}", request) for patch in range(100))


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)]
