"""Check a cluster's nodes before a submission: whether they are this machine, and what their Python offers."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement

from marin.run.submit.jobs_api import JobsApi
from marin.run.submit.options import new_submission_id
from marin.run.submit.submission import Submission
from rigging.errors import InvalidRequest, NotFound

PREFIX_VARIABLE: Final = "MARIN_PREFIX"
LOOK_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.2
_MARK: Final = "marin-found "
_WORKER_OPTION: Final = "--python_worker_command="
# Outside of a virtual environment Ray makes one with pip in it; one it copies, and pip is not in those of uv.
_LOOK: Final = (
    "import importlib.util as u, json, os, sys; "
    "has = lambda name: u.find_spec(name) is not None; "
    f"print({_MARK!r} + json.dumps([sys.prefix == sys.base_prefix or has('pip'), has('uv'), "
    f"os.environ.get({PREFIX_VARIABLE!r}, '')]))"
)


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a cluster.

    Args:
        python: The Python of its head's tasks; empty if unknown.
        are_here: Whether all of them are on this machine and use this process's environment.
    """

    python: str = ""
    are_here: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The Python of a cluster's head: ways to install packages for a job, and its MARIN_PREFIX."""

    has_pip: bool
    has_uv: bool
    prefix: str = ""


def read_nodes(summaries: Sequence[Mapping[str, Any]], hostname: str, environment: str) -> Nodes:
    """Return the nodes from the dashboard's description of each.

    Args:
        summaries: The dashboard's `/nodes?view=summary`.
        hostname: This machine's name.
        environment: This process's `sys.prefix`.
    """
    living = [each for each in summaries if (each.get("raylet") or {}).get("state") == "ALIVE"]
    pythons = [_python(each.get("cmdline") or ()) for each in living]
    head = next((at for at, each in enumerate(living) if each["raylet"].get("isHeadNode")), None)
    are_here = bool(living) and all(
        each.get("hostname") == hostname and os.path.dirname(os.path.dirname(python)) == environment
        for each, python in zip(living, pythons, strict=True)
    )
    return Nodes(pythons[head] if head is not None else "", are_here)


def _python(words: Sequence[str]) -> str:
    command = next((word.removeprefix(_WORKER_OPTION) for word in words if word.startswith(_WORKER_OPTION)), "")
    return command.split(" ", 1)[0]


async def fit_to_nodes(
    api: JobsApi,
    submission: Submission,
    *,
    own_prefix: str,
    all_packages: bool,
    submit: Callable[[Submission], Awaitable[str]],
    say: Callable[[str], None],
) -> Submission:
    """Return the job in a form that this cluster's nodes can run.

    Args:
        api: The cluster's Jobs API.
        submission: The job.
        own_prefix: A MARIN_PREFIX on this machine that the job does not get; empty for none.
        all_packages: Whether to send packages that the nodes already have.
        submit: Submits a job.
        say: Prints a message for the user.

    Raises:
        InvalidRequest: Packages need to be installed, and the nodes' Python has no installer.
    """
    nodes = read_nodes(await _summaries(api), socket.gethostname(), sys.prefix)
    if nodes.are_here:
        submission = _for_this_environment(submission, own_prefix, all_packages, say)
        own_prefix = ""
    if not nodes.python or not (submission.pip or own_prefix):
        return submission
    found = _find_here() if nodes.are_here else await look(api, nodes.python, submit)
    if found is None:
        return submission
    if own_prefix and found.prefix:
        say(f"the cluster's {PREFIX_VARIABLE} is {found.prefix}")
    elif own_prefix:
        say(
            f"warning: the cluster has no {PREFIX_VARIABLE}: except on Google Cloud, outputs will lie in /tmp/marin of "
            f"the node that writes them; -e {PREFIX_VARIABLE} URL names a place that all nodes reach"
        )
    if not submission.pip or found.has_pip:
        return submission
    if found.has_uv:
        return replace(submission, installer="uv")
    names = ", ".join(submission.pip[:3]) + (", ..." if len(submission.pip) > 3 else "")
    raise InvalidRequest(
        f"{len(submission.pip)} packages are to be installed for the job ({names}), and the nodes' Python, "
        f"{nodes.python}, has neither pip nor uv: `uv pip install --python {nodes.python} pip` on each node gives it "
        "pip; --no-project-deps installs nothing of the project's"
    )


async def look(api: JobsApi, python: str, submit: Callable[[Submission], Awaitable[str]]) -> Found | None:
    """Query the head's Python through a job, which is removed afterwards. Return None if it does not answer in time."""
    job_id = await submit(Submission(f"marin-look-{new_submission_id()[-8:]}", (python, "-c", _LOOK)))
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            while not (await api.info(job_id)).ended:  # noqa: ASYNC110 - another machine's state
                await asyncio.sleep(_POLL_SECONDS)
            return read_found(await api.logs(job_id))
    except TimeoutError:
        return None
    finally:
        api.remove(job_id)


def read_found(log: str) -> Found | None:
    """Parse the output of `look`'s job; return None if it is missing."""
    line = next((line for line in log.splitlines() if line.startswith(_MARK)), None)
    return Found(*json.loads(line.removeprefix(_MARK))) if line else None


async def _summaries(api: JobsApi) -> list[dict[str, Any]]:
    try:
        return await api.nodes()
    except NotFound:
        return []  # a Ray without this page


def _for_this_environment(
    submission: Submission, own_prefix: str, all_packages: bool, say: Callable[[str], None]
) -> Submission:
    where = f"the cluster runs on this machine, in this environment ({sys.prefix})"
    # Ray starts a job's command with the PATH that it was started with itself, where another `python` may be first.
    env_vars = {"PATH": f"{sys.prefix}/bin:${{PATH}}", **submission.env_vars}
    if own_prefix:
        env_vars.setdefault(PREFIX_VARIABLE, own_prefix)
        say(f"{where}: {PREFIX_VARIABLE}={own_prefix} is passed on")
    pip = submission.pip if all_packages else tuple(text for text in submission.pip if not is_installed(text))
    if pip != submission.pip:
        count = len(submission.pip) - len(pip)
        say(f"{where}: {count} packages that it has are not sent (--project-deps sends them)")
    return replace(submission, env_vars=env_vars, pip=pip)


def is_installed(requirement: str) -> bool:
    """Return whether this environment satisfies a requirement, or the marker excludes this environment."""
    try:
        wanted = Requirement(requirement)
        if wanted.marker is not None and not wanted.marker.evaluate():
            return True
        return wanted.specifier.contains(metadata.version(wanted.name), prereleases=True)
    except (InvalidRequirement, metadata.PackageNotFoundError):
        return False


def _find_here() -> Found:
    from importlib.util import find_spec

    has_pip = sys.prefix == sys.base_prefix or find_spec("pip") is not None
    return Found(has_pip, find_spec("uv") is not None)
