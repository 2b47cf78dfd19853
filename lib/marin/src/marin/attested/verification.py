"""Verification of an attestation: rerun its steps below a temporary prefix, and compare their outputs."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from marin.attested.attestation import Attestation, path_of
from marin.attested.rerun import Rerun
from marin.attested.verdicts import StepVerdict, Tolerance, judge
from marin.execution.record.code_record import describe_code
from marin.execution.record.contents import installed_packages
from marin.execution.report.explain_mode import ExplainRequest
from marin.execution.version.differences import value_differences
from marin.stored_files import names_in, reading
from rigging.errors import Conflict, InvalidRequest, NotFound
from rigging.filesystem import local_path, marin_temp_bucket, url_to_fs
from rigging.project.code_state import read_code_state

_SHOWN: Final = 5


def verify(
    attestation: Attestation,
    rerun: Rerun,
    load: Callable[[ExplainRequest], object],
    tolerances: Sequence[Tolerance],
    tell: Callable[[int, int], object],
) -> list[StepVerdict]:
    """Rerun steps, and return the verdicts on the steps that ran, in the order of the attestation.

    Args:
        attestation: The attestation.
        rerun: Reruns its steps.
        load: Runs the script with a request for each of its experiments.
        tolerances: The tolerances of numbers.
        tell: Called with the number of compared steps, and of all steps.

    Raises:
        NotFound: The script does not exist.
        Conflict: The script lacks attested steps, or their inputs do not match the attestation. Nothing has run.
    """
    try:
        load(ExplainRequest(prefix=rerun.prefix, inspect=rerun.inspect))
    except NotFound as error:
        raise NotFound(f"{error}; start in the directory where the run started, or name the script after --") from error
    except InvalidRequest as error:  # of a script that reads outputs of other steps than these
        if rerun.absent is not None:
            raise Conflict(_refusal(attestation, rerun.absent)) from error
        raise
    if rerun.errors is None:
        raise Conflict(_refusal(attestation, rerun.absent))
    chosen = [step for step in attestation.steps if step.path in rerun.errors]
    verdicts: list[StepVerdict] = []
    for step in chosen:
        new_path = rerun.path_of(step.path)
        verdict = judge(
            step,
            path_of(step.path, rerun.prefix),
            new_path,
            tolerances,
            {new_path: path_of(step.path, attestation.prefix), rerun.fresh: attestation.prefix},
            error=rerun.errors[step.path],
            code=rerun.code[step.path],
        )
        verdicts.append(verdict)
        tell(len(verdicts), len(chosen))
    return verdicts


def surroundings_notes(attestation: Attestation) -> list[str]:
    """Return how the code around the working directory, and the installed packages, differ from the attested ones."""
    then, now = attestation.code, asdict(read_code_state(os.getcwd()))
    notes = []
    if then and then.get("commit") != now["commit"]:
        notes.append(f"attested at {describe_code(then)}; the code here is at {describe_code(now)}")
    elif then and then.get("digest") != now["digest"]:
        notes.append(f"uncommitted changes differ from those of the attested run (at {describe_code(then)})")
    packages = attestation.runs.get(attestation.run, {}).get("packages")
    found = value_differences(packages, installed_packages(sys.path)) if isinstance(packages, dict) else []
    if found:
        rest = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        notes.append(f"packages differ: {'; '.join(map(str, found[:_SHOWN]))}{rest}")
    return notes


def _refusal(attestation: Attestation, absent: Sequence[str] | None) -> str:
    if absent is None:
        return "the script gives no steps to executor_main"
    return (
        f"the script lacks {len(absent)} of {len(attestation.steps)} attested step(s), such as {absent[0]}: a "
        f"versioned value has changed, or an argument is missing (attested at commit {attestation.commit or 'unknown'})"
    )


def fresh_prefix(prefix: str) -> str:
    """Return a new prefix in temporary storage: that of the attested prefix if it exists, else this machine's."""
    place = marin_temp_bucket(1, f"verify-{uuid.uuid4().hex[:12]}", source_prefix=prefix if names_in(prefix) else None)
    local = local_path(place)
    return place if local is None else local


def remove(prefix: str) -> None:
    """Remove all outputs of a fresh prefix."""
    with reading(prefix):
        fs, path = url_to_fs(prefix)
        if fs.exists(path):
            fs.rm(path, recursive=True)
