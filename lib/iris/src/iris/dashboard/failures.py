"""The end of the log of what failed."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from iris.client.types import LogLine
from iris.dashboard.cluster_client import ClusterClient
from iris.dashboard.log_lines import is_for_programs, last_lines, line_of
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import MarinError
from rigging.web.login import Viewer

_READ_LINES = 20


@dataclass(frozen=True, slots=True)
class FailedLog:
    """The end of the log of a task that failed.

    Attributes:
        task_id: The task.
        lines: The last lines, without blank ones at the end; empty if it printed nothing.
        address: The log's page, at the last of these lines; "" if it printed nothing.
    """

    task_id: str
    lines: list[str]
    address: str


async def failed_log(
    client: ClusterClient, viewer: Viewer, job_id: str, replicas: int, decided_by: str
) -> FailedLog | None:
    """Return the end of the log of the task by which a job failed; None if it has none that can be read now.

    Args:
        client: The controller.
        viewer: The viewer.
        job_id: The job.
        replicas: Its number of tasks.
        decided_by: The task by which it failed; "" if unknown.
    """
    task_id = decided_by or (f"{job_id}/0" if replicas == 1 else "")
    if not task_id:
        return None
    try:
        task = await client.task(viewer, task_id)
        wanted = pb.FetchLogsRequest(id=task_id, attempt=max(task.attempt, 0))
        found = await last_lines(client, viewer, wanted, _READ_LINES)
    except MarinError:
        return None
    lines = _whole([(number, line) for number, line in found if not is_for_programs(line)])
    while lines and not lines[-1][1].data.strip():
        lines.pop()
    last = next((number for number, line in reversed(lines) if number and not line.partial), None)
    address = f"/logs?{urlencode({'id': task_id, 'attempt': wanted.attempt})}" + (f"#L{last}" if last else "")
    return FailedLog(task_id, [str(line_of(line, wanted)["text"]) for _, line in lines], address if lines else "")


def _whole(found: list[tuple[int, LogLine]]) -> list[tuple[int, LogLine]]:
    """Return records as the log's page shows them: a line is where it ends, and unfinished ones come last."""
    begun: dict[bool, bytes] = {}
    lines: list[tuple[int, LogLine]] = []
    unfinished: dict[bool, tuple[int, LogLine]] = {}
    for number, line in found:
        if line.note:
            lines.append((number, line))
            continue
        stream = line.is_stderr
        line = line._replace(data=begun.pop(stream, b"") + line.data)
        unfinished.pop(stream, None)
        if line.partial:
            begun[stream], unfinished[stream] = line.data, (number, line)
        else:
            lines.append((number, line))
    return [*lines, *unfinished.values()]
