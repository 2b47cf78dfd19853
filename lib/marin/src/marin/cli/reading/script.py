"""Load the steps of a script. The script runs up to the start of its experiments."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from marin.cli.deciding.lint import StepFacts
from marin.execution.config.unversioned import unversioned_part
from marin.execution.report.explain_mode import ExplainRequest
from marin.execution.run.pipeline import Executor
from marin.explain import explain_script
from rigging.errors import Conflict, InvalidRequest, MarinError, NotFound
from rigging.redaction import redact_value


def steps_of_script(script: str, arguments: Sequence[str]) -> list[StepFacts]:
    """Return the steps of every `executor_main` in a script, without running them or reading storage.

    Args:
        script: The script's path, or the dotted name of a module.
        arguments: The script's arguments.

    Raises:
        NotFound: The script does not exist.
        InvalidRequest: The script cannot be imported, or it raised.
        Conflict: The script exited before it reached its steps.
    """
    found: list[StepFacts] = []

    def inspect(executor: Executor) -> None:
        for step in executor.steps:
            version = executor.versions[step]
            found.append(StepFacts(step.name, version["config"], redact_value(unversioned_part(step.config))))

    load_script(script, arguments, ExplainRequest(inspect=inspect))
    return found


def load_script(script: str, arguments: Sequence[str], request: ExplainRequest) -> None:
    """Run a script up to its experiments, which answer a request. The script's output goes to stderr.

    Args:
        script: The script's path, or a module's dotted name.
        arguments: Its command line.
        request: The request to each `executor_main`.

    Raises:
        NotFound: The script does not exist.
        InvalidRequest: The script cannot be imported, or raises.
        Conflict: The script ends before its steps.
    """
    if script.endswith(".py") and not os.path.exists(script):
        raise NotFound(f"no script {script}")
    with contextlib.redirect_stdout(sys.stderr):
        try:
            explain_script(script, arguments, request)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise Conflict(f"{script} exited before its steps: {error.code}") from error
        except MarinError:
            raise
        except Exception as error:
            raise InvalidRequest(f"{script} cannot be loaded: {type(error).__name__}: {error}") from error
