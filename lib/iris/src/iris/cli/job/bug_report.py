"""`iris job bug-report`: everything known about a job in one archive, with secrets redacted."""

import io
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import say
from iris.cli.params import JOB
from rigging.errors import AlreadyExists, MarinError
from rigging.redaction import is_secret_name, named_secrets, redact_string, redact_value, redact_values

if TYPE_CHECKING:
    from iris.client import IrisClient, JobStatus, TaskStatus

_LINES_OF_A_TASK: Final = 2000
_BYTES_OF_A_TASK: Final = 1024 * 1024
_TASKS: Final = 100
_CHILDREN: Final = 1000
_EVENTS: Final = 500
_PACKAGES: Final = ("marin-iris", "marin-rigging", "grpcio", "protobuf", "cloudpickle", "uv")


@click.command("bug-report")
@click.argument("name", type=JOB, metavar="JOB")
@click.option("-o", "--output", "place", type=click.Path(path_type=Path), metavar="FILE", help="Output file.")
@pass_context
def bug_report(context: CliContext, /, name: str, place: Path | None) -> None:
    """Write an archive (tar.gz) with everything known about a job, for a bug report.

    It contains the job's status, its tasks and attempts, the reasons why it waits, its child jobs, the end of each
    task's output, the cluster's workers and all versions. Everything that looks like a secret is redacted, including
    the values of variables with secret names in this shell and in the report. Review the archive before you share it.
    """
    from iris.cli.job.ids import find_job

    with context.client() as client:
        status = find_job(client, name)
        target = place or _default_name(status.job_id)
        files = redacted(collected(client, status), os.environ)
    write_archive(target, files)
    size = target.stat().st_size
    say(f"wrote {target}: {len(files)} files, {size:,} bytes; likely secrets were redacted")


def _default_name(job_id: str) -> Path:
    name = job_id.strip("/").replace("/", "-")
    return Path(f"iris-bug-{name}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")


def redacted(files: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return the content of the files without secrets.

    A value with a secret's name in one file or in `environ` is redacted in all files.
    """
    texts = {name: value if isinstance(value, str) else _json(value) for name, value in files.items()}
    secrets = {value for name, value in environ.items() if is_secret_name(name)}
    secrets = secrets.union(*map(named_secrets, texts.values()))
    shown = {
        name: redact_string(value) if isinstance(value, str) else _json(redact_value(value))
        for name, value in files.items()
    }
    return {name: redact_values(text, secrets).encode(errors="replace") for name, text in shown.items()}


def collected(client: "IrisClient", status: "JobStatus") -> dict[str, object]:
    """Return the files of the archive by name, as text or JSON values, not yet redacted.

    Missing information is replaced by the reason.
    """
    tasks = client.list_tasks(status.job_id)
    files: dict[str, object] = {
        "versions.json": _versions(),
        "job.json": status.to_json(),
        "tasks.json": [task.to_json() for task in tasks],
        "children.json": _try(lambda: [child.to_json() for child in _children(client, status)]),
        "cluster.json": _try(lambda: client.cluster_status(all_workers=True).to_json()),
        "events.json": _try(lambda: _events(client, status.job_id)),
        "summary.txt": _summary(status, tasks),
    }
    for task in _most_telling(tasks, status.deciding_task_id):
        files[f"logs/{task.task_id.rpartition('/')[2]}.txt"] = _log(client, task.task_id)
    return files


def _events(client: "IrisClient", job_id: str) -> list[dict[str, Any]]:
    """Return the last events of a job, of its child jobs and of all workers."""
    name = job_id.replace("'", "''")
    mine = f"subject = '{name}' OR substr(subject, 1, {len(job_id) + 1}) = '{name}/' OR subject IS NULL"
    found = client.query(f"SELECT * FROM events WHERE {mine} ORDER BY sequence DESC LIMIT {_EVENTS}", _EVENTS)
    return [dict(zip(found.columns, row, strict=True)) for row in reversed(found.rows)]


def _children(client: "IrisClient", status: "JobStatus") -> "list[JobStatus]":
    found = client.list_jobs(prefix=status.job_id, limit=_CHILDREN)
    return [child for child in found if child.job_id != status.job_id]


def _most_telling(tasks: "list[TaskStatus]", deciding: str) -> "list[TaskStatus]":
    """Return the tasks whose logs the archive includes: first the task that decided the end, then failed tasks."""
    ordered = sorted(tasks, key=lambda task: (task.task_id != deciding, not task.error, not task.causes))
    return ordered[:_TASKS]


def _summary(status: "JobStatus", tasks: "list[TaskStatus]") -> str:
    lines = [f"{status.job_id}: {status.state.word}", f"error: {status.error}", f"waits: {status.pending_reason}"]
    for task in tasks:
        lines.append(f"task {task.task_id}: {task.state.word} {task.error or task.pending_reason}")
        lines += [f"  {cause}" for cause in task.causes]
    return "\n".join(lines) + "\n"


def _log(client: "IrisClient", task_id: str) -> str:
    """Return the last lines of a task, from all attempts."""
    try:
        lines = list(client.read_logs(task_id, max_lines=_LINES_OF_A_TASK))
    except MarinError as error:
        return f"cannot be read: {error}\n"
    kept: list[str] = []
    size = 0
    for line in reversed(lines):
        where = "iris" if line.note else "stderr" if line.is_stderr else "stdout"
        text = f"{line.at_ms} attempt {line.attempt} {where}: {line.text}"
        size += len(text)
        if size > _BYTES_OF_A_TASK:
            kept.append("(earlier lines are omitted)")
            break
        kept.append(text)
    return "\n".join(reversed(kept)) + "\n"


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


def _try(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except MarinError as error:
        return {"not available": str(error)}


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"


def write_archive(target: Path, files: dict[str, bytes]) -> None:
    """Write the archive (mode 0600). Raise AlreadyExists if the file exists."""
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
