"""`iris job bug-report`: all that is known about a job in one archive, without secrets."""

import io
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import say
from rigging.errors import AlreadyExists, MarinError
from rigging.redaction import redact_string, redact_value

if TYPE_CHECKING:
    from iris.client import IrisClient, JobStatus, TaskStatus

_LINES_OF_A_TASK: Final = 2000
_BYTES_OF_A_TASK: Final = 1024 * 1024
_TASKS: Final = 100
_CHILDREN: Final = 1000
_PACKAGES: Final = ("marin-iris", "marin-rigging", "grpcio", "protobuf", "cloudpickle", "uv")


@click.command("bug-report")
@click.argument("name", metavar="JOB")
@click.option("-o", "--output", "place", type=click.Path(path_type=Path), metavar="FILE", help="Write it there.")
@pass_context
def bug_report(context: CliContext, /, name: str, place: Path | None) -> None:
    """Put what is known about a job into one archive (tar.gz), for those who are to find out what went wrong.

    Its status and tasks with their attempts, the reasons why it waits, its child jobs, the end of each task's
    output, the cluster's workers and all versions. What looks like a secret is taken out; look through it all the
    same before you pass it on.
    """
    from iris.cli.job.ids import find_job

    with context.client() as client:
        status = find_job(client, name)
        target = place or _default_name(status.job_id)
        files = collected(client, status)
    write_archive(target, files)
    size = target.stat().st_size
    say(f"wrote {target}: {len(files)} files, {size:,} bytes; what looks like a secret was taken out")


def _default_name(job_id: str) -> Path:
    name = job_id.strip("/").replace("/", "-")
    return Path(f"iris-bug-{name}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")


def collected(client: "IrisClient", status: "JobStatus") -> dict[str, bytes]:
    """The files of the archive by their names, redacted. What cannot be had is said in its place."""
    tasks = client.list_tasks(status.job_id)
    files = {
        "versions.json": _json(_versions()),
        "job.json": _json(status.to_json()),
        "tasks.json": _json([task.to_json() for task in tasks]),
        "children.json": _try(lambda: [child.to_json() for child in _children(client, status)]),
        "cluster.json": _try(lambda: client.cluster_status(all_workers=True).to_json()),
        "summary.txt": redact_string(_summary(status, tasks)).encode(),
    }
    for task in _most_telling(tasks, status.deciding_task_id):
        files[f"logs/{task.task_id.rpartition('/')[2]}.txt"] = _log(client, task.task_id)
    return files


def _children(client: "IrisClient", status: "JobStatus") -> "list[JobStatus]":
    found = client.list_jobs(prefix=status.job_id, limit=_CHILDREN)
    return [child for child in found if child.job_id != status.job_id]


def _most_telling(tasks: "list[TaskStatus]", deciding: str) -> "list[TaskStatus]":
    """So many tasks as the archive has logs of: the one that decided the end first, then those that ended badly."""
    ordered = sorted(tasks, key=lambda task: (task.task_id != deciding, not task.error, not task.causes))
    return ordered[:_TASKS]


def _summary(status: "JobStatus", tasks: "list[TaskStatus]") -> str:
    lines = [f"{status.job_id}: {status.state.word}", f"error: {status.error}", f"waits: {status.pending_reason}"]
    for task in tasks:
        lines.append(f"task {task.task_id}: {task.state.word} {task.error or task.pending_reason}")
        lines += [f"  {cause}" for cause in task.causes]
    return "\n".join(lines) + "\n"


def _log(client: "IrisClient", task_id: str) -> bytes:
    """The last lines of a task, all attempts of it."""
    try:
        lines = list(client.read_logs(task_id, max_lines=_LINES_OF_A_TASK))
    except MarinError as error:
        return f"cannot be read: {error}\n".encode()
    kept: list[str] = []
    size = 0
    for line in reversed(lines):
        where = "iris" if line.note else "stderr" if line.is_stderr else "stdout"
        text = f"{line.at_ms} attempt {line.attempt} {where}: {line.text}"
        size += len(text)
        if size > _BYTES_OF_A_TASK:
            kept.append("(what came before is left out)")
            break
        kept.append(text)
    # All at once: a private key has several lines.
    return (redact_string("\n".join(reversed(kept))) + "\n").encode(errors="replace")


def _versions() -> dict[str, Any]:
    from iris.rpc.protocol import PROTOCOL_VERSION

    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {
        "packages": found,
        "protocol": PROTOCOL_VERSION,
        "python": sys.version,
        "platform": platform.platform(),
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _try(ask: Callable[[], Any]) -> bytes:
    try:
        return _json(ask())
    except MarinError as error:
        return _json({"cannot be had": str(error)})


def _json(value: Any) -> bytes:
    return (json.dumps(redact_value(value), indent=2, ensure_ascii=False, default=str) + "\n").encode(errors="replace")


def write_archive(target: Path, files: dict[str, bytes]) -> None:
    """Write the archive (0600). Raises AlreadyExists when there is such a file."""
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise AlreadyExists(f"{target} exists: name another file with -o") from None
    except OSError as error:
        raise MarinError(f"cannot write {target}: {error.strerror or error}") from None
    folder = target.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
