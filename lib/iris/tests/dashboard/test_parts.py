"""What the pages are made of: SQL, live news, timelines, metrics, places in logs."""

import json
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.client.types import LogLine
from iris.dashboard import queries
from iris.dashboard.job_facts import (
    attempts_of,
    command_line,
    figures_of,
    history_of,
    history_of_all,
    named,
    usage_of,
)
from iris.dashboard.live import events_of, is_wanted
from iris.dashboard.log_lines import line_of
from iris.dashboard.log_pages import LogPlace
from iris.dashboard.metrics import metrics_text
from iris.dashboard.overview import HOUR_MS, capacities, columns_of, quantile
from iris.dashboard.settings import settings_of
from iris.dashboard.timeline import timeline_of
from iris.rpc.generated import dashboard_pb2 as dashboard
from iris.rpc.generated import iris_pb2 as pb
from iris.store.views import VIEWS
from rigging.errors import InvalidRequest
from rigging.web.events import Event

T = 1_790_000_000_000


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_a_quoted_text_is_that_text_and_nul_is_refused(text: str) -> None:
    assert sqlite3.connect(":memory:").execute(f"SELECT {queries.quoted(text)}").fetchone() == (text,)
    with pytest.raises(InvalidRequest, match="NUL"):
        queries.quoted("a\0b")


def test_questions_that_people_ask_are_of_tables_that_there_are() -> None:
    for _, sql in queries.SAVED:
        assert any(f"FROM {name}" in sql for name in VIEWS), sql


def changes(**fields: object) -> dashboard.ClusterChanges:
    return dashboard.ClusterChanges(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "job", "wanted"),
    [
        (changes(job_ids=["/ann/a"]), "", ["jobs"]),
        (changes(job_ids=["/ann/a"]), "/ann/a", ["job"]),
        (changes(job_ids=["/ann/a/child"]), "/ann/a", ["job"]),
        (changes(job_ids=["/ann/ab"]), "/ann/a", []),
        (changes(many_jobs=True), "/ann/a", ["job"]),
        (changes(workers=True, endpoints=True), "/ann/a", ["workers", "endpoints"]),
        (changes(), "", []),
    ],
)
def test_pages_hear_of_what_concerns_them(told: dashboard.ClusterChanges, job: str, wanted: list[str]) -> None:
    events = [Event("1", name, data) for name, data in events_of(told)]
    assert [event.name for event in events if is_wanted(event, job)] == wanted


def task(index: int, state: int, started: int = 0, finished: int = 0, attempt: int = 0) -> pb.TaskStatus:
    times = {"started_at_ms": started, "finished_at_ms": finished}
    return pb.TaskStatus(task_id=f"/ann/a/{index}", state=state, attempt=attempt, **times)  # type: ignore[arg-type]


def test_a_timeline_reaches_from_the_first_start_to_now() -> None:
    tasks = [
        task(0, pb.TASK_STATE_SUCCEEDED, T, T + 500),
        task(1, pb.TASK_STATE_RUNNING, T + 250, attempt=2),
        task(2, pb.TASK_STATE_PENDING),
    ]
    timeline = timeline_of(tasks, T + 1000)
    first, second = timeline.bars.values()
    assert timeline.ticks == ((0.0, "0"), (100.0, "1 s"))
    assert timeline_of(tasks, T + 1000, T - 1000, T + 3_000_000).ticks[1] == (pytest.approx(100 * 600 / 3001), "10 min")
    (span,) = first.spans
    assert (first.label, first.state, span.left, span.width) == ("0", "succeeded", 0, 50)
    (span,) = second.spans
    assert (span.left, span.width, second.seconds, second.earlier) == (25, 75, 0.75, 2)
    assert timeline_of(tasks[2:], T).bars == {}


def test_earlier_attempts_are_on_the_timeline_of_their_task_as_far_as_it_is_known_when_they_ran() -> None:
    retried = task(0, pb.TASK_STATE_PENDING, attempt=2)
    retried.failures = 2
    retried.causes.extend(["attempt 0 on w1: exit code 3", "attempt 1 on w1: lost", "attempt 2 on w2: exit code 4"])
    for number, (begin, end) in enumerate(((T, T + 200), (0, T + 400), (T + 500, T + 700))):
        retried.usage.add(attempt_id=f"/ann/a/0:{number}", began_at_ms=begin, at_ms=end)
    (bar,) = timeline_of([retried, task(1, pb.TASK_STATE_PENDING)], T + 5000).bars.values()
    assert [(each.attempt, each.state, each.left, each.width, each.words) for each in bar.spans] == [
        (0, "earlier", 0, 100 * 2 / 7, "attempt 0, 0.2 s: exit code 3"),
        (2, "earlier", 100 * 5 / 7, 100 * 2 / 7, "attempt 2, 0.2 s: exit code 4"),
    ], "of the second one nobody knows when it ran"
    retried.started_at_ms, retried.finished_at_ms, retried.state = T + 500, T + 1000, pb.TASK_STATE_FAILED
    (bar,) = timeline_of([retried], T + 5000).bars.values()
    found = [(each.attempt, each.state, each.left, each.width) for each in bar.spans]
    assert found == [(0, "earlier", 0, 20), (2, "failed", 50, 50)]
    assert (bar.seconds, bar.earlier) == (0.5, 2)
    retried.failures = retried.preemptions = 1
    retried.causes[0] = "attempt 0 on w1: the platform preempted the host"
    assert [each.state for each in timeline_of([retried], T).bars["0"].spans] == ["preempted", "failed"]


@given(st.lists(st.tuples(st.integers(T - 10**9, T + 10**9), st.integers(-(10**6), 10**9)), min_size=1))
def test_bars_lie_within_the_timeline(times: list[tuple[int, int]]) -> None:
    """Clocks that were set back make ends before beginnings."""
    tasks = [task(i, pb.TASK_STATE_SUCCEEDED, at, at + lasted) for i, (at, lasted) in enumerate(times)]
    for bar in timeline_of(tasks, T).bars.values():
        assert all(0 <= span.left <= 100 and span.width > 0 for span in bar.spans)
        assert bar.seconds >= 0


def test_attempts_are_told_newest_first_each_with_its_end_and_the_usage_of_the_latest_is_added_up() -> None:
    usage = [pb.AttemptUsage(attempt_id="/ann/a/0:1", cpu_ms=5)]
    found = pb.TaskStatus(task_id="/ann/a/0", attempt=1, causes=["exit code 1"], usage=usage)
    found.usage.add(attempt_id="/ann/a/0:0", began_at_ms=T, at_ms=T + 900)
    second, first = attempts_of(found, T + 5000)
    assert (second["number"], second["cause"], second["usage"].cpu_ms) == (1, "", 5)
    assert (first["number"], first["cause"]) == (0, "exit code 1")
    assert (second["times"], first["times"].end_ms - first["times"].begin_ms) == (None, 900)
    assert attempts_of(pb.TaskStatus(attempt=-1), T) == []
    usage = [pb.AttemptUsage(cpu_millis=9, memory_bytes=9), pb.AttemptUsage(cpu_millis=500, memory_bytes=70)]
    running = pb.TaskStatus(usage=usage)
    assert usage_of([running, running, pb.TaskStatus()], 4.0) == {"at": 4.0, "tasks": 2, "cpu": 1.0, "memory": 140}


def test_a_chart_of_a_task_has_its_attempts_with_gaps_between_and_what_was_asked_for() -> None:
    found = pb.TaskStatus(usage=[pb.AttemptUsage(), pb.AttemptUsage(), pb.AttemptUsage()])
    for number in (0, 2):
        begin = T + 10_000 * number
        found.usage[number].history.add(from_ms=begin, until_ms=begin + 2000, cpu_ms=1000, memory_peak_bytes=7)
    found.usage[0].history.add(
        from_ms=T + 2000, until_ms=T + 4000, cpu_ms=3000, cpu_peak_millis=4000, memory_bytes=5, memory_peak_bytes=9
    )
    chart, begin = history_of(found, pb.Resources(cpu_millis=1500)), T / 1000
    assert chart["at"] == [begin, begin + 2, begin + 4, begin + 4, begin + 20, begin + 22]
    assert (chart["cpu"], chart["cpu_peak"]) == ([0.5, 0.5, 1.5, None, 0.5, 0.5], [0.5, 0.5, 4, None, 0.5, 0.5])
    assert (chart["memory"][:4], chart["memory_peak"][:4]) == ([7, 7, 5, None], [7, 7, 9, None])
    assert (chart["cpu_asked"], "memory_asked" in chart) == ([1.5] * 6, False)
    assert history_of(pb.TaskStatus(), pb.Resources())["at"] == []
    # Of two tasks the use is added up where both ran.
    other = pb.TaskStatus(usage=[pb.AttemptUsage()])
    other.usage[0].history.add(from_ms=T + 1000, until_ms=T + 3000, cpu_ms=2000, memory_peak_bytes=1)
    total = history_of_all([found, other], pb.Resources(cpu_millis=1500))
    assert total["at"] == [begin + second for second in (0, 1, 2, 3, 4, 20, 22)]
    assert total["cpu"] == [0.5, 1.5, 2.5, 1.5, None, 0.5, None]
    assert total["cpu_asked"] == [1.5, 3, 3, 1.5, None, 1.5, None]


def test_a_job_says_what_it_used_of_what_it_held_and_how_a_copy_is_submitted() -> None:
    spec = pb.JobSpec(job_id="/ann/top/a", replicas=2, band=pb.PRIORITY_BAND_BATCH, max_retries_preemption=1000)
    spec.entrypoint.command.argv.extend(["python", "-c", "print('x y')"])
    spec.resources.CopyFrom(pb.Resources(cpu_millis=500, memory_bytes=2**31))
    spec.resources.device.CopyFrom(pb.Device(kind="gpu", variant="H100", count=8))
    expected = "iris job run --job-name a --cpu 0.5 --memory 2GB --gpu H100x8 --replicas 2 --priority batch -- "
    assert command_line(spec) == expected + """python -c 'print('"'"'x y'"'"')'"""
    status = pb.JobStatus(spec=spec, submitted_at_ms=T, started_at_ms=T + 1000, finished_at_ms=T + 7_201_000)
    used = {"cpu_seconds": 1800.0, "memory_peak_bytes": 2**30, "seconds": 14_400.0}
    assert figures_of(status, used, T) == [
        ("Run time", "2 h 0 min", "waited 1.0 s"),
        ("Core-hours", "0.5", "25 % of 2 held"),
        ("Chip-hours", "32", "8 × H100 a task"),
        ("Peak memory of a task", "1 GiB", "50 % of 2 GiB"),
    ]
    assert figures_of(status, {"cpu_seconds": 0.01, "seconds": 1.0}, T)[1] == (
        "Core-hours",
        "< 0.001",
        "2 % of < 0.001 held",
    )
    assert named("waits for /ann/a.b: 3 of 4, see docs/x") == [
        ("waits for ", ""), ("/ann/a.b", "/job?id=/ann/a.b"), (": 3 of 4, see docs/x", ""),
    ]  # fmt: skip


def test_the_overview_adds_up_what_connected_workers_have_and_what_it_was_used_for() -> None:
    device = pb.Device(kind="gpu", variant="H100", count=8)
    here = pb.WorkerInfo(
        connected=True, used_cpu_millis=500,
        capacity=pb.Resources(cpu_millis=4000, memory_bytes=8, device=device),
        committed=pb.Resources(cpu_millis=1000, memory_bytes=2, device=pb.Device(count=2)),
    )  # fmt: skip
    found = capacities([here, here, pb.WorkerInfo(capacity=pb.Resources(cpu_millis=9000))])
    assert [(item.name, item.total, item.promised, item.used) for item in found] == [
        ("Cores", 8, 2, 1), ("Memory", 16, 4, 0), ("H100 chips", 16, 4, None),
    ]  # fmt: skip
    rows = [
        {"start_ms": T + hour * HOUR_MS, "class": use, "core_seconds": seconds}
        for hour, use, seconds in ((0, "idle", 3600), (0, "productive", 10_800), (2, "lost", 1800), (9, "lost", 1800))
    ]
    chart = columns_of(rows, "core_seconds", T, HOUR_MS, 4)
    assert (chart.top, chart.width, chart.totals) == (4, 25, (("productive", 3.0), ("lost", 0.5), ("idle", 1.0)))
    assert [(column.x, column.parts) for column in chart.columns] == [
        (0, (("good", 25, 75), ("idle", 0, 25))), (50, (("bad", 87.5, 12.5),)),
    ]  # fmt: skip
    assert [quantile([1, 2, 3, 4], share) for share in (0, 0.5, 0.95, 1)] == [1, 3, 4, 4]
    assert quantile([], 0.5) is None


def test_metrics_are_prometheus_text() -> None:
    status = pb.ClusterStatusResponse(workers=[pb.WorkerInfo(connected=True, cordon_reason="x"), pb.WorkerInfo()])
    figures = dashboard.ControllerFiguresResponse(
        rpcs=[dashboard.Timing(name='a"\\\n', count=3, seconds=0.5)], rounds=dashboard.Timing(count=2, p99_ms=8)
    )
    text = metrics_text(status, figures)
    assert 'iris_workers{state="away"} 1\n' in text
    assert 'iris_rpcs_total{method="a\\"\\\\\\n"} 3\n' in text
    assert "iris_round_p99_seconds 0.0080000000000000002\n" in text
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ", "iris_", "process_")), line
    exprs = re.findall(r'"expr": "(.*)"', (Path(__file__).parents[4] / "infra/grafana/iris.json").read_text())
    shown = set(re.findall(r"\b(?:iris|process)_\w+", " ".join(exprs)))
    assert (len(shown) > 10, {name for name in shown if f"# TYPE {name} " not in text}) == (True, set())
    assert metrics_text(None, None).endswith("iris_controller_up 0\n")


def entry(at_ms: int, text: str = "x", is_stderr: bool = False, attempt: int = 0) -> LogLine:
    return LogLine("/ann/a/0", attempt, is_stderr, at_ms, text.encode())


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
def test_a_page_that_connects_again_misses_nothing_and_has_nothing_twice(steps: list[int], data: st.DataObject) -> None:
    at, entries = T, []
    for step in steps:
        at += step
        entries.append(entry(at))
    had = data.draw(st.integers(1, len(entries)))
    place = LogPlace(0, 0)
    for item in entries[:had]:
        assert place.is_new(item)
    since, _, count = place.mark.partition("-")
    again = LogPlace(int(since), int(count))
    from_there = [item for item in entries if item.at_ms >= int(since)]
    assert [id(item) for item in from_there if again.is_new(item)] == [id(item) for item in entries[had:]]


def test_lines_say_whose_they_are_and_carry_no_control_characters() -> None:
    line = line_of(entry(T, "a\x1b[31mb", is_stderr=True, attempt=2), pb.FetchLogsRequest(id="/ann/a"))
    assert (line["who"], line["kind"]) == ("0 attempt 2", "err")
    assert "\x1b" not in str(line["text"])
    of_task = pb.FetchLogsRequest(id="/ann/a/0")
    assert line_of(entry(T), of_task)["who"] == ""
    assert str(line_of(entry(T, "y" * 9000), of_task)["text"]).endswith("(9000 bytes)")


@pytest.mark.parametrize("line", ["", "{}", "[]", "{", json.dumps({"controller": "x", "secret": "zz", "key": "00"})])
def test_settings_that_are_none_are_refused_without_being_quoted(line: str) -> None:
    with pytest.raises(InvalidRequest, match="iris cluster dashboard"):
        settings_of(line)
    good = settings_of(json.dumps({"controller": "127.0.0.1:1", "secret": "aa", "key": "bb", "later": 1}))
    assert "aa" not in repr(good)
