"""`cluster jobs|stop-job|restart`, through the Jobs API."""

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import click

from marin.run.cluster import ray_commands
from marin.run.cluster.cli.context import (
    ClusterFile,
    clear_leftovers,
    cluster_option,
    confirm,
    dry_run_option,
    launched_files,
    load_cluster_file,
    say,
    show,
    shown_leftovers,
    yes_option,
)
from marin.run.cluster.cli.dashboard import ending_on_signals, take_token
from marin.run.cluster.execute import run
from marin.run.cluster.jobs.backup import LostJob, SavedJob, select_jobs, with_package
from marin.run.cluster.jobs.unpacking import unpack_on_head
from marin.run.cluster.launched import state_folder
from marin.run.cluster.nodes.local import expect_workers_again
from marin.run.cluster_target import ClusterTarget, find_target
from marin.run.connection import open_connection
from marin.run.submit.jobs_api import JobsApi, NotReady
from marin.run.submit.working_directory import Package, pack_all
from rigging.errors import Conflict, InvalidRequest, MarinError, Unavailable
from rigging.ray_token import find_token
from rigging.redaction import redact_string
from rigging.timing import ExponentialBackoff

_T = TypeVar("_T")
_SHOWN: Final = 100
READY_SECONDS: Final = 300.0
# Of a cluster that is being started: first and longest pause between two looks.
_FIRST_LOOK_SECONDS: Final = 0.05
_LAST_LOOK_SECONDS: Final = 1.0
_CLUSTER_HELP: Final = "Cluster (default: RAY_ADDRESS, else http://127.0.0.1:8265)."


@click.command("jobs")
@click.option("--cluster", metavar="NAME|FILE|URL", help=_CLUSTER_HELP)
@click.option("--all", "every", is_flag=True, help="Include jobs that have ended.")
@dry_run_option
def jobs(cluster: str | None, every: bool, dry_run: bool) -> None:
    """List the jobs of a cluster: status, id, command."""
    target = find_target(cluster, os.environ)
    if dry_run:
        show(*_shown_calls(target, "GET /api/jobs/"))
        return
    for job in _ask(target, lambda api: api.jobs()):
        if every or job.get("status") in ("PENDING", "RUNNING"):
            name = job.get("submission_id") or job.get("job_id")
            click.echo(f"{job.get('status'):10} {name}  {redact_string(str(job.get('entrypoint')))[:_SHOWN]}")


@click.command("stop-job")
@click.argument("job_id", metavar="JOB")
@click.option("--cluster", metavar="NAME|FILE|URL", help=_CLUSTER_HELP)
@yes_option
@dry_run_option
def stop_job(job_id: str, cluster: str | None, yes: bool, dry_run: bool) -> None:
    """Stop a job."""
    target = find_target(cluster, os.environ)
    if dry_run:
        show(*_shown_calls(target, f"POST /api/jobs/{job_id}/stop"))
        return
    confirm(f"Stop job {job_id}?", yes=yes)
    if _ask(target, lambda api: api.stop(job_id)):
        say(f"job {job_id} is being stopped")
    else:
        say(f"job {job_id} has already ended")


@click.command("restart")
@cluster_option
@click.option(
    "--resubmit", metavar="FOLDER", help="Do not restart; submit the jobs that a restart saved in this folder."
)
@yes_option
@dry_run_option
def restart(cluster: str, resubmit: str | None, yes: bool, dry_run: bool) -> None:
    """Restart a cluster. Running jobs are saved first and submitted again afterwards."""
    found = load_cluster_file(cluster)
    found.check()
    if dry_run:
        submit = "POST /api/jobs/  (each saved job)"
        if resubmit:
            show(*_shown_calls(found.target, submit))
            return
        fetch = ray_commands.fetch_unpacked(found.shown, "PACKAGE.zip", "FOLDER/PACKAGE.zip/")
        down, up = ray_commands.down(found.shown), ray_commands.up(found.shown)
        unpack = "POST /api/jobs/  (for each job's working directory one that has it)"
        show(*_shown_calls(found.target, "GET /api/jobs/"), *_shown_calls(found.target, unpack)[1:])
        show(f"{fetch}  (each job's working directory)")
        show(down, *shown_leftovers(found), up)
        show(*_shown_calls(found.target, submit))
        return
    with ending_on_signals():
        if resubmit:
            _submit_saved(found, Path(resubmit))
            return
        found.check_names()
        confirm(f"Restart {found.name}? All of its VMs are removed; its jobs start over.", yes=yes)
        folder = _save(found)
        try:
            expect_workers_again(found.config)
            run(ray_commands.down(found.shown))
            _clear(found)
            launched_files().forget(found.file)
            launched_files().remember(found.file)
            run(ray_commands.up(found.shown))
            take_token(found)
            _submit_saved(found, folder)
        except BaseException:
            say(f"the jobs are saved in {folder}; submit them with: cluster restart --resubmit {folder}")
            raise


def _clear(found: ClusterFile) -> None:
    try:
        clear_leftovers(found)
    except MarinError as error:  # nothing that the new cluster needs
        say(str(error))


def _save(found: ClusterFile) -> Path:
    """Save the running jobs with their working directories. Nothing is stopped before all are saved."""

    async def look(api: JobsApi) -> tuple[list[SavedJob], list[LostJob]]:
        saved, lost = select_jobs(await api.jobs())
        await unpack_on_head(api, saved)
        return saved, lost

    try:
        saved, lost = _ask(found.target, look)
    except Conflict as error:
        raise Conflict(f"{error}; nothing was stopped") from None
    for job in lost:
        say(f"job {job.job_id} will not be submitted again: {job.reason}")
    folder = state_folder(os.environ, Path.home()) / "jobs" / f"{found.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder.mkdir(parents=True, mode=0o700)
    for package in sorted({job.package for job in saved if job.package}):
        (folder / package).mkdir()
        run(ray_commands.fetch_unpacked(found.shown, package, f"{folder / package}/"))
        if not any((folder / package).iterdir()):
            owners = ", ".join(job.job_id for job in saved if job.package == package)
            raise Conflict(f"the working directory of {owners} is not on the head; nothing was stopped")
    handle = os.open(folder / "jobs.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # it has the jobs' secrets
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump([{"package": job.package, "body": job.body} for job in saved], file, indent=1)
    say(f"{len(saved)} jobs are saved in {folder}")
    return folder


def _read_saved(folder: Path) -> list[SavedJob]:
    try:
        found = json.loads((folder / "jobs.json").read_text(encoding="utf-8"))
        return [SavedJob(each["body"], each["package"]) for each in found]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(f"{folder} has no saved jobs: {error}") from None


def _submit_saved(found: ClusterFile, folder: Path) -> None:
    """Submit the saved jobs of a folder. Each submitted job is marked, so that a second call submits only the
    others."""
    waiting = _read_saved(folder)
    packages = {job.package: pack_all(folder / job.package) for job in waiting if job.package}
    done: list[str] = []

    async def submit(api: JobsApi) -> None:
        for job in waiting:
            await _submit(api, job, packages.get(job.package))
            done.append(job.job_id)
            say(f"job {job.job_id} is submitted again")

    try:
        if waiting:
            _ask(found.target, submit, patience=READY_SECONDS)
    finally:
        left = [{"package": job.package, "body": job.body} for job in waiting if job.job_id not in done]
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(left, file, indent=1)
        os.replace(name, folder / "jobs.json")


async def _submit(api: JobsApi, job: SavedJob, package: Package | None) -> None:
    if package is not None:
        if not await api.has_package(package.name):
            await api.upload_package(package.name, package.data)
        job = with_package(job, package.uri)
    deadline = time.monotonic() + READY_SECONDS
    pauses = _look_pauses()
    while True:
        try:
            await api.submit(job.body)
            return
        except NotReady:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(pauses.next_interval())


def _look_pauses() -> ExponentialBackoff:
    return ExponentialBackoff(initial=_FIRST_LOOK_SECONDS, maximum=_LAST_LOOK_SECONDS)


def _ask(target: ClusterTarget, question: Callable[[JobsApi], Awaitable[_T]], *, patience: float = 0.0) -> _T:
    """Send a request to a cluster's Jobs API, waiting up to `patience` seconds for it to start."""

    async def ask(address: str) -> _T:
        async with JobsApi(address, target.origin, find_token(os.environ, Path.home())) as api:
            deadline = time.monotonic() + patience
            pauses = _look_pauses()
            while True:
                try:
                    await api.check()
                    break
                except Unavailable:
                    if time.monotonic() >= deadline:
                        raise
                await asyncio.sleep(pauses.next_interval())
            return await question(api)

    deadline = time.monotonic() + patience
    while True:
        with contextlib.ExitStack() as stack:
            try:
                address = stack.enter_context(open_connection(target))
            except MarinError:
                if time.monotonic() >= deadline:
                    raise
                continue
            return asyncio.run(ask(address))


def _shown_calls(target: ClusterTarget, call: str) -> list[str]:
    method, _, path = call.partition(" ")
    if target.file is None:
        return [f"{method} {target.address}{path}"]
    file = ray_commands.shown_file(target.file, Path.cwd())
    return [
        str(ray_commands.dashboard(file, 0)).replace("--port 0", "--port PORT"),
        f"{method} http://127.0.0.1:PORT{path}",
    ]
