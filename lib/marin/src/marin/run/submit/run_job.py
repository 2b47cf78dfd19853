"""`ray_run` from its options to the end of the job."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Final

from marin.run.cluster_target import DEFAULT_ADDRESS, ClusterTarget, find_target
from marin.run.submit.follow import BY_SIGNAL, Follower, say
from marin.run.submit.jobs_api import JobsApi, NotReady
from marin.run.submit.nodes import PREFIX_VARIABLE, fit_to_nodes
from marin.run.submit.options import RunOptions, new_submission_id
from marin.run.submit.submission import EntrypointResources, Submission
from marin.run.submit.working_directory import Package, list_working_directory, pack
from rigging.errors import MarinError, NotFound, Unavailable
from rigging.project import FORWARDED_ENV_VARS
from rigging.project.code_state import CODE_VARIABLE, code_variables
from rigging.project.needs import ProjectNeeds, project_needs, read_pyprojects, requirement_name
from rigging.ray_token import AuthToken, find_token
from rigging.text.printable import printable
from rigging.text.quantities import format_size

READY_SECONDS: Final = 60.0
_RAY: Final = "ray"
_LOOKS_AFTER_INTERRUPT: Final = 10
_LOOK_SECONDS: Final = 0.3
_NO_AGENT_HINT: Final = (
    "if its head has run for long: the agent that starts jobs may not have got its port (52365, or that of "
    "`ray start --dashboard-agent-listen-port`), for which it does not try again; dashboard_agent.log in "
    "/tmp/ray/session_latest/logs of the head tells, and starting Ray there anew helps"
)


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job that is ready to submit. `own_prefix` is a MARIN_PREFIX on this machine that the job does not get."""

    submission: Submission
    package: Package
    notes: tuple[str, ...]
    own_prefix: str = ""


def submit_and_follow(options: RunOptions, environ: Mapping[str, str]) -> int:
    """Submit the job, follow it, and return the command's exit code.

    Raises:
        MarinError: The job was not submitted.
    """
    target = find_target(options.cluster, environ, start=options.working_dir)
    prepared = prepare(options, environ)
    for note in prepared.notes:
        say(printable(note))
    if options.dry_run:
        print(describe(options, prepared, target))
        return 0
    from marin.run.connection import open_connection

    with open_connection(target) as address:
        token = find_token(environ, Path.home())
        return asyncio.run(_run(options, prepared, address, target, token))


def prepare(options: RunOptions, environ: Mapping[str, str]) -> PreparedJob:
    """Prepare the whole request. Raise InvalidRequest."""
    root = options.working_dir.resolve()
    listing = list_working_directory(root, environ)
    tables = read_pyprojects(root)
    needs = project_needs(tables, options.extras, [file.path for file in listing.files], left_out={_RAY})
    package = pack(root, listing)
    env_vars, notes = job_env({**options.env_of_files, **options.env}, needs, environ)
    env_vars |= code_variables(str(root), environ)
    submission = Submission(
        submission_id=options.submission_id or new_submission_id(),
        command=options.command,
        env_vars=env_vars,
        withheld=frozenset({CODE_VARIABLE, *(options.env_of_files.keys() - options.env.keys())}),
        pip=_requirements(options, needs),
        package_uri=package.uri,
        resources=EntrypointResources(options.num_cpus, options.num_gpus, options.memory, options.resources),
    )
    own_prefix = "" if PREFIX_VARIABLE in env_vars else environ.get(PREFIX_VARIABLE, "")
    return PreparedJob(submission, package, (*package.warnings, *needs.notes, *notes), own_prefix)


def job_env(
    given: Mapping[str, str], needs: ProjectNeeds, environ: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the job's variables, and messages about them for the user.

    Args:
        given: Variables of the command line, which take precedence.
        needs: The project's needs, including the import paths of its code.
        environ: The submitter's variables, some of which are forwarded.
    """
    passed = {name: value for name, value in environ.items() if name in FORWARDED_ENV_VARS or name.startswith("MARIN_")}
    notes = []
    prefix = passed.get(PREFIX_VARIABLE, "")
    if PREFIX_VARIABLE not in given and prefix and "://" not in prefix:
        del passed[PREFIX_VARIABLE]
        notes.append(
            f"{PREFIX_VARIABLE}={prefix} is a folder of this machine: it is passed on to a cluster on this machine "
            f"alone (-e {PREFIX_VARIABLE} passes it on to any)"
        )
    env_vars = {**passed, **given}
    # Ray puts the working directory itself first.
    paths = [*filter(None, [given.get("PYTHONPATH")]), *needs.import_paths]
    if paths:
        env_vars["PYTHONPATH"] = ":".join(paths)
    return env_vars, tuple(notes)


def describe(options: RunOptions, prepared: PreparedJob, target: ClusterTarget) -> str:
    """Return the request as JSON without secrets, for --dry-run.

    Args:
        options: The command-line options.
        prepared: The job.
        target: The cluster.
    """
    package = prepared.package
    shown = {
        "cluster": str(target.file) if target.file else target.address,
        "cluster_from": target.origin,
        "working_dir": {
            "folder": str(options.working_dir.resolve()),
            "package": package.name,
            "files": package.file_count,
            "bytes": package.size_bytes,
            "packed_bytes": len(package.data),
        },
        "request": prepared.submission.shown_body(),
        "ray_command": prepared.submission.ray_command(
            target.address or DEFAULT_ADDRESS,
            str(options.working_dir),
            wait=options.wait,
            named=options.submission_id is not None,
        ),
    }
    return json.dumps(shown, indent=2, ensure_ascii=False)


def _requirements(options: RunOptions, needs: ProjectNeeds) -> tuple[str, ...]:
    from_project = needs.requirements if options.project_dependencies is not False else ()
    wanted = dict.fromkeys([*from_project, *options.pip_deps])
    return tuple(requirement for requirement in wanted if requirement_name(requirement) != _RAY)


class _EarlyEnd:
    """Cancel this task on SIGTERM and SIGHUP before the job is followed. The follower handles them afterwards."""

    def __init__(self) -> None:
        self.signal = 0
        self.submitting = False
        self._main = asyncio.current_task()

    def listen(self) -> None:
        """Start listening. Ignored signals stay ignored, as required by `nohup`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        if not self.signal:
            self.signal = number
            assert self._main is not None
            self._main.cancel()


async def _run(
    options: RunOptions, prepared: PreparedJob, address: str, target: ClusterTarget, token: AuthToken
) -> int:
    # The tunnel to a cluster that is known by its file ends with this command; later ones are Ray's usual.
    later = DEFAULT_ADDRESS if target.file is not None else ""
    async with JobsApi(address, target.origin, token, later_address=later, verbose=options.verbose) as api:
        warn_of_versions(await api.check())
        early = _EarlyEnd()
        try:
            return await _submit_and_follow(options, prepared, api, target, early)
        except asyncio.CancelledError:
            # By Ctrl-C, or one of the signals that are heard until the job is followed.
            await _end_early(api, prepared.submission.submission_id, early, options.auto_stop or not early.signal)
            if not early.signal:
                raise
            return BY_SIGNAL + early.signal


def warn_of_versions(theirs: str) -> None:
    """Warn if the cluster's Ray has another version than this environment's."""
    try:
        own = metadata.version(_RAY)
    except metadata.PackageNotFoundError:
        return  # a job needs none here
    if theirs != own:
        say(
            f"warning: the cluster has Ray {theirs}, and this environment {own}: what connects to it from here, as "
            "with FRAY_CLIENT=ray, needs the cluster's; jobs have it"
        )


async def _submit_and_follow(
    options: RunOptions, prepared: PreparedJob, api: JobsApi, target: ClusterTarget, early: _EarlyEnd
) -> int:
    early.listen()
    submission = await fit_to_nodes(
        api,
        prepared.submission,
        own_prefix=prepared.own_prefix,
        all_packages=options.project_dependencies is True,
        submit=lambda job: _submit_when_ready(api, job),
        say=_say_plainly,
    )
    prepared = replace(prepared, submission=submission)
    job_id = await _submit(api, prepared, early)
    shown = api.shown_address
    say(f"job {job_id} submitted")
    if target.file is not None:
        say(f"this command's tunnel ends with it; the commands below need `ray dashboard {target.file}`")
    say(f"dashboard: {shown}/#/jobs/{job_id}")
    say(
        "the equivalent Ray command: "
        + prepared.submission.ray_command(shown, str(options.working_dir), wait=options.wait)
    )
    if not options.wait:
        say(f"its log: `ray job logs --address {shown} --follow {job_id}`")
        print(job_id)
        return 0
    return await Follower(api, job_id, write=_write, say=_say_plainly, auto_stop=options.auto_stop).run()


async def _end_early(api: JobsApi, job_id: str, early: _EarlyEnd, stop: bool) -> None:
    """Stop the job of an interrupted submission, or print how to stop it."""
    line = f"`ray job stop --address {api.shown_address} {job_id}`"
    if not early.submitting:
        say("nothing was submitted")
    elif stop:
        # Printed before stopping: a second interrupt would skip it.
        say(f"stopping job {job_id} if it was submitted (Ctrl-C again: exit at once; {line} stops it)")
        try:
            say(await take_back(api, job_id))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
    else:
        say(f"left; job {job_id} may have been submitted, and may run: {line} stops it")


async def _submit(api: JobsApi, prepared: PreparedJob, early: _EarlyEnd) -> str:
    submission, package = prepared.submission, prepared.package
    if not await api.has_package(package.name):
        say(f"sending {package.file_count} files ({format_size(len(package.data))} packed)")
        await api.upload_package(package.name, package.data)
    early.submitting = True
    try:
        return await _submit_when_ready(api, submission)
    except NotReady:
        raise
    except Unavailable as error:
        raise Unavailable(
            f"{error}\nwhether job {submission.submission_id} was submitted is not known: "
            f"`ray job status --address {api.shown_address} {submission.submission_id}` tells"
        ) from None


async def _submit_when_ready(api: JobsApi, submission: Submission) -> str:
    """Submit the job, waiting for a cluster that is starting."""
    deadline = asyncio.get_running_loop().time() + READY_SECONDS
    told = False
    while True:
        try:
            return await api.submit(submission.body())
        except NotReady as error:
            if asyncio.get_running_loop().time() > deadline:
                raise NotReady(f"{error}\n{_NO_AGENT_HINT}") from None
            if not told:
                say(f"{error}; trying again for {READY_SECONDS:g} s")
            told = True
            await asyncio.sleep(_LOOK_SECONDS)


async def take_back(api: JobsApi, job_id: str, look_seconds: float = _LOOK_SECONDS) -> str:
    """Stop a job whose submission was interrupted, if the cluster has the job.

    Args:
        api: The cluster's Jobs API.
        job_id: The job.
        look_seconds: Delay between two requests while the cluster does not know the job.

    Returns:
        A message for the user.
    """
    for _ in range(_LOOKS_AFTER_INTERRUPT):
        try:
            await api.stop(job_id)
        except NotFound:
            await asyncio.sleep(look_seconds)
        except MarinError as error:
            return f"job {job_id} may run ({error}): `ray job stop --address {api.shown_address} {job_id}` stops it"
        else:
            return f"job {job_id} is stopped"
    return "nothing was submitted"


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # The reader of the output has gone, or the disk is full; the job is still followed to its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"the rest of the job's output is not shown: {error.strerror}")


def _say_plainly(text: str) -> None:
    say(printable(text))
