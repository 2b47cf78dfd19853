"""The controller's metrics in Prometheus' text format. Pure."""

from __future__ import annotations

from iris.rpc.generated import dashboard_pb2 as dashboard
from iris.rpc.generated import iris_pb2 as pb

_Sample = tuple[str, str, str, list[tuple[dict[str, str], float]]]


def metrics_text(status: pb.ClusterStatusResponse | None, figures: dashboard.ControllerFiguresResponse | None) -> str:
    """Return all metrics as text. If the controller is unreachable, return only the metric that says this.

    Args:
        status: The cluster.
        figures: The controller's metrics.
    """
    is_up = status is not None and figures is not None
    samples: list[_Sample] = [("iris_controller_up", "gauge", "1 if the controller answers.", [({}, int(is_up))])]
    if status is not None and figures is not None:
        connected = [worker for worker in status.workers if worker.connected]
        samples += [
            ("iris_tasks", "gauge", "Tasks by state.", [
                ({"state": "pending"}, status.pending_tasks), ({"state": "running"}, status.running_tasks),
            ]),
            ("iris_queued_jobs", "gauge", "Jobs with pending tasks.", [({}, figures.queued_jobs)]),
            ("iris_workers", "gauge", "Workers by state.", [
                ({"state": "connected"}, len(connected)),
                ({"state": "cordoned"}, sum(bool(worker.cordon_reason) for worker in connected)),
                ({"state": "away"}, len(status.workers) - len(connected)),
            ]),
            ("iris_capacity_cpus", "gauge", "Cores of connected workers.", [
                ({}, sum(worker.capacity.cpu_millis for worker in connected) / 1000)
            ]),
            ("iris_committed_cpus", "gauge", "Cores allocated to tasks.", [
                ({}, sum(worker.committed.cpu_millis for worker in connected) / 1000)
            ]),
            ("iris_events_total", "counter", "Events processed by the controller.", [({}, figures.events)]),
            ("iris_rounds_total", "counter", "Scheduling rounds.", [({}, figures.rounds.count)]),
            ("iris_round_seconds_total", "counter", "Time in scheduling rounds.", [({}, figures.rounds.seconds)]),
            ("iris_round_p99_seconds", "gauge", "Of the latest 1,000 rounds.", [({}, figures.rounds.p99_ms / 1000)]),
            ("iris_commits_total", "counter", "Commits to the database.", [({}, figures.commits.count)]),
            ("iris_commit_seconds_total", "counter", "Time in commits.", [({}, figures.commits.seconds)]),
            ("iris_commit_p99_seconds", "gauge", "Of the latest 1,000 commits.", [({}, figures.commits.p99_ms / 1000)]),
            ("iris_stalled", "gauge", "1 while commits fail.", [({}, int(bool(figures.stalled)))]),
            ("iris_unreplicated_commits", "gauge", "Commits not yet in the remote state.", [
                ({}, status.unreplicated_commits)
            ]),
            ("iris_sessions", "gauge", "Open sessions.", [
                ({"of": "workers"}, figures.worker_sessions), ({"of": "clients"}, figures.client_sessions),
            ]),
            ("iris_rpcs_total", "counter", "Calls by method.", [
                ({"method": rpc.name}, rpc.count) for rpc in figures.rpcs
            ]),
            ("iris_rpc_errors_total", "counter", "Calls that failed.", [
                ({"method": rpc.name}, rpc.errors) for rpc in figures.rpcs
            ]),
            ("iris_rpc_seconds_total", "counter", "Time in calls; of streams, while they are open.", [
                ({"method": rpc.name}, rpc.seconds) for rpc in figures.rpcs
            ]),
            ("process_resident_memory_bytes", "gauge", "Of the controller.", [({}, figures.rss_bytes)]),
            ("process_cpu_seconds_total", "counter", "Of the controller.", [({}, figures.cpu_seconds)]),
            ("process_start_time_seconds", "gauge", "Of the controller.", [({}, figures.started_at_ms / 1000)]),
        ]  # fmt: skip
    return "".join(_metric(*sample) for sample in samples)


def _metric(name: str, kind: str, words: str, values: list[tuple[dict[str, str], float]]) -> str:
    lines = [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
    for labels, value in values:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{inside}}} {value:.17g}" if labels else f"{name} {value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
