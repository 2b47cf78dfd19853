"""A job and its tasks in the forms that pages show. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final
from urllib.parse import quote

from iris.dashboard.cluster_client import Row
from iris.dashboard.timeline import attempts_in_time
from iris.rpc.generated import iris_pb2 as pb
from rigging.text.quantities import format_size
from rigging.text.tables import duration

_ORDER: Final = (
    *("succeeded", "failed", "worker_failed", "unschedulable", "killed", "preempted"),
    *("running", "building", "assigned"),
)
_NAMED: Final = re.compile(r"((?<![\w/.])/[\w.+-]+(?:/[\w.+~-]*\w)+)")
_FAILED: Final = (pb.JOB_STATE_FAILED, pb.JOB_STATE_WORKER_FAILED, pb.JOB_STATE_UNSCHEDULABLE)


def usage_of(tasks: Sequence[pb.TaskStatus], now: float) -> dict[str, float]:
    """Return the total usage of running tasks: tasks, cores, bytes of memory.

    Args:
        tasks: The running tasks.
        now: Seconds since the epoch.
    """
    latest = [task.usage[-1] for task in tasks if task.usage]
    cores, memory = sum(item.cpu_millis for item in latest) / 1000, sum(item.memory_bytes for item in latest)
    return {"at": now, "tasks": len(latest), "cpu": cores, "memory": memory}


def life_of(began_ms: int, ended_ms: int) -> dict[str, float]:
    """Return the ends of the time axis of a chart, in seconds since the epoch; {} for what has not started.

    Args:
        began_ms: Start; 0 for none.
        ended_ms: End, or the current time.
    """
    return {"from": began_ms / 1000, "to": ended_ms / 1000} if began_ms else {}


def history_of(task: pb.TaskStatus, asked: pb.Resources) -> dict[str, list[float | None]]:
    """Return the usage of a task's attempts as columns of a chart, with a gap between two attempts.

    Args:
        task: The task with its history.
        asked: What the task requested.
    """
    rows: list[tuple[float | None, ...]] = []
    for use in task.usage:
        if rows and use.history:
            rows.append((rows[-1][0], None, None, None, None))
        for number, point in enumerate(use.history):
            cores = point.cpu_ms / max(point.until_ms - point.from_ms, 1)
            memory = point.memory_bytes or point.memory_peak_bytes
            values = (cores, max(point.cpu_peak_millis / 1000, cores), memory, point.memory_peak_bytes)
            rows += [(at_ms / 1000, *values) for at_ms in (point.from_ms, point.until_ms)[number > 0 :]]
    names = ("at", "cpu", "cpu_peak", "memory", "memory_peak")
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    limits = {"cpu_asked": asked.cpu_millis / 1000, "memory_asked": asked.memory_bytes}
    return columns | {name: [limit] * len(rows) for name, limit in limits.items() if limit}


def history_of_all(tasks: Sequence[pb.TaskStatus], asked: pb.Resources) -> dict[str, Any]:
    """Return the usage of several tasks over time, added up, as columns of a stepped chart; None where nothing ran.

    Args:
        tasks: The tasks with their histories.
        asked: What each task requested.
    """
    changes: dict[int, list[float]] = {}
    for point in (point for task in tasks for use in task.usage for point in use.history):
        cores = point.cpu_ms / max(point.until_ms - point.from_ms, 1)
        for at_ms, sign in ((point.from_ms, 1), (point.until_ms, -1)):
            found = changes.setdefault(at_ms, [0.0, 0.0, 0.0])
            for place, value in enumerate((1, cores, point.memory_bytes or point.memory_peak_bytes)):
                found[place] += sign * value
    at_times = sorted(changes)
    totals = list(
        accumulate((changes[at_ms] for at_ms in at_times), lambda a, b: [x + y for x, y in zip(a, b, strict=True)])
    )
    columns: dict[str, Any] = {"at": [at_ms / 1000 for at_ms in at_times], "stepped": True}
    for place, name in ((1, "cpu"), (2, "memory")):
        columns[name] = [round(total[place], 6) if total[0] else None for total in totals]
    for name, limit in (("cpu_asked", asked.cpu_millis / 1000), ("memory_asked", asked.memory_bytes)):
        if limit:
            columns[name] = [total[0] * limit if total[0] else None for total in totals]
    return columns


def word_of(name: str) -> str:
    """Return a state's name: `JOB_STATE_RUNNING` is "running"."""
    return name.split("_STATE_")[-1].lower()


def attempts_of(task: pb.TaskStatus, now_ms: int) -> list[dict[str, Any]]:
    """Return the attempts of a task, newest first: number, reason of the end ("" if running), usage and times or None.

    Args:
        task: The task.
        now_ms: Unix time.
    """
    times = {each.number: each for each in attempts_in_time(task, now_ms)}
    usage = {item.attempt_id.rpartition(":")[2]: item for item in task.usage}
    found = []
    for number in range(task.attempt + 1):
        cause = task.causes[number] if number < len(task.causes) else ""
        found.append({"number": number, "cause": cause, "usage": usage.get(str(number)), "times": times.get(number)})
    return found[::-1]


def named(text: str) -> list[tuple[str, str]]:
    """Return a text in parts, each with the address of the job that it names; "" for other parts.

    Args:
        text: A sentence, such as the reason why a job is pending.
    """
    parts = _NAMED.split(text)
    found = []
    for place, part in enumerate(parts):
        found.append((part, f"/job?id={quote(part)}" if place % 2 else ""))
    return [item for item in found if item[0]]


def tasks_of(rows: Sequence[Row], times: Sequence[Row]) -> list[pb.TaskStatus]:
    """Return tasks for a timeline.

    Args:
        rows: The rows of `queries.list_tasks`.
        times: Those of `queries.attempt_times`.
    """
    found = {}
    for row in rows:
        names = ("task_id", "attempt", "started_at_ms", "finished_at_ms", "failures", "preemptions")
        state = pb.TaskState.Value(f"TASK_STATE_{row['state_word'].upper()}")
        causes = json.loads(row["causes"] or "[]")
        found[row["task_index"]] = pb.TaskStatus(**{name: row[name] for name in names}, state=state, causes=causes)
    for item in times:
        fields = {name: item[name] for name in ("attempt_id", "began_at_ms", "at_ms")}
        found[item["task_index"]].usage.add(**fields)
    return list(found.values())


def spec_facts(status: pb.JobStatus) -> list[tuple[str, str]]:
    """Return a job's request as labels and values.

    Args:
        status: The job's status with its spec.
    """
    spec, resources = status.spec, status.spec.resources
    facts = [("cpu", f"{resources.cpu_millis / 1000:g}")]
    if resources.memory_bytes:
        facts.append(("memory", format_size(resources.memory_bytes)))
    if resources.disk_bytes:
        facts.append(("disk", format_size(resources.disk_bytes)))
    if resources.device.kind:
        facts.append(("device", f"{resources.device.kind} {resources.device.variant} × {resources.device.count}"))
    facts.append(("band", word_of(pb.PriorityBand.Name(spec.band).replace("PRIORITY_BAND_", "_STATE_"))))
    facts.append(
        ("retries", f"{spec.max_retries_failure} after failures, {spec.max_retries_preemption} after preemptions")
    )
    for constraint in spec.constraints:
        facts.append(("constraint", json.dumps(str(constraint).strip().replace("\n", ", "))[1:-1].replace('\\"', '"')))
    return facts


def in_order(counts: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return counts of states in the order of a bar: what has ended, then what runs, then what waits."""
    return sorted(counts, key=lambda item: (_ORDER.index(item[0]) if item[0] in _ORDER else len(_ORDER), item[0]))


def command_line(spec: pb.JobSpec) -> str:
    """Return the `iris job run` that submits a job like this one from its workspace; "" for a callable.

    Args:
        spec: The job's spec. Its variables are not part of it.
    """
    if not spec.entrypoint.HasField("command"):
        return ""
    resources, device = spec.resources, spec.resources.device
    variant = ",".join([device.variant, *device.alternatives])
    flags: list[tuple[str, Any, Any]] = [
        ("job-name", spec.job_id.rpartition("/")[2], ""),
        ("cpu", f"{resources.cpu_millis / 1000:g}", ""),
        ("memory", _size(resources.memory_bytes), "0MB"),
        ("disk", _size(resources.disk_bytes), "0MB"),
        ("tpu", variant if device.kind == "tpu" else "", ""),
        ("gpu", f"{device.variant}x{device.count}".removeprefix("x") if device.kind == "gpu" else "", ""),
        ("replicas", spec.replicas, 1),
        ("image", spec.runtime.image, ""),
        ("gang", spec.coscheduling_group_by if device.kind != "tpu" else "", ""),
        ("max-retries", spec.max_retries_failure, 0),
        ("max-retries-preemption", spec.max_retries_preemption, 1000),
        ("max-task-failures", spec.max_task_failures, 0),
        ("timeout", f"{spec.timeout_ms / 1000:g}", "0"),
        ("scheduling-timeout", f"{spec.scheduling_timeout_ms / 1000:g}", "0"),
        ("priority", word_of(pb.PriorityBand.Name(spec.band).replace("PRIORITY_BAND_", "_STATE_")), "interactive"),
        ("description", spec.description, ""),
    ]
    words = [f"--{name} {shlex.quote(str(value))}" for name, value, usual in flags if value != usual]
    words += [f"--extra {shlex.quote(extra)}" for extra in spec.environment.extras]
    words += [f"--pip {shlex.quote(package)}" for package in spec.environment.pip_packages]
    return " ".join(["iris job run", *words, "--", shlex.join(spec.entrypoint.command.argv)])


def _size(count: int) -> str:
    return f"{count / 2**30:g}GB" if count >= 2**30 else f"{count // 2**20}MB"


def figures_of(status: pb.JobStatus, used: Mapping[str, Any], now_ms: int) -> list[tuple[str, str, str]]:
    """Return the key figures of a job: label, value and a note.

    Args:
        status: The job with its spec.
        used: `cpu_seconds`, `memory_peak_bytes` and `seconds` of all its attempts; None where unknown.
        now_ms: Unix time.
    """
    resources, found = status.spec.resources, []
    if status.started_at_ms:
        waited = (status.started_at_ms - status.submitted_at_ms) / 1000
        took = ((status.finished_at_ms or now_ms) - status.started_at_ms) / 1000
        found.append(("Run time" if status.finished_at_ms else "Elapsed", duration(took), f"waited {duration(waited)}"))
    elif not status.finished_at_ms:
        found.append(("Waiting", duration((now_ms - status.submitted_at_ms) / 1000), ""))
    asked = (used.get("seconds") or 0) * resources.cpu_millis / 1000
    if asked and used.get("cpu_seconds") is not None:
        share = 100 * used["cpu_seconds"] / asked
        found.append(("Core-hours", _hours(used["cpu_seconds"]), f"{share:.0f} % of {_hours(asked)} held"))
    if asked and (chips := resources.device.count if resources.device.kind != "cpu" else 0):
        found.append(("Chip-hours", _hours(used["seconds"] * chips), f"{chips} × {resources.device.variant} a task"))
    if peak := used.get("memory_peak_bytes"):
        share_of = f"{100 * peak / resources.memory_bytes:.0f} % of {format_size(resources.memory_bytes)}"
        found.append(("Peak memory of a task", format_size(peak), share_of if resources.memory_bytes else ""))
    return found


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    if 0 < hours < 0.001:
        return "< 0.001"
    return f"{hours:.3g}" if hours < 100 else f"{hours:,.0f}"


def is_failed(status: pb.JobStatus) -> bool:
    """Return whether a job failed by itself or by its hosts; killed jobs were stopped."""
    return status.state in _FAILED
