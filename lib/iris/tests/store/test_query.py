"""What operators may ask, what they get, and what no question can do."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from iris.core.state.changes import Changes
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import Job, Task, UserBudget, Worker
from iris.domain.events import NOBODY, Assigned, Caller, JobSubmitted, Record, Requested, WorkerCordoned
from iris.domain.ids import AttemptId, JobId, WorkerId, attempt_id, task_id
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.states import JobState, PriorityBand, TaskState
from iris.domain.usage import AttemptUse, LedgerRow, Owner, Usage
from iris.store import query
from iris.store.query import run_query
from iris.store.store import Store
from iris.store.views import READABLE, VIEWS
from rigging.errors import BudgetExceeded, Denied, InvalidRequest

SPEC = JobSpec(
    JobId("/ann/train"), CommandEntrypoint(("python", "train.py")),
    Resources(4000, 2**30, 0, Device("tpu", "v5p-8", 4)), env_vars={"TOKEN": "hunter2"}, replicas=2,
    band=PriorityBand.PRODUCTION, description="a try",
)  # fmt: skip

ENDPOINT = RegisteredEndpoint("/ann/train/server", AttemptId("/ann/train/0:0"), "host:1", {"role": "main"}, 5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path, generation=1)  # so that it has a journal
    yield store
    store.close()


@pytest.fixture
def state_dir(tmp_path: Path, store: Store) -> Path:
    counts = tuple(2 if number == TaskState.FAILED else 0 for number in range(max(TaskState) + 1))
    job = Job(SPEC, JobState.FAILED, 1, 2, 3, error="task 0 failed: it's over", sequence=1, task_counts=counts)
    child = replace(SPEC, job_id=JobId("/ann/train/eval"), env_vars={}, replicas=1)
    tasks = [Task(task_id(SPEC.job_id, i), SPEC.job_id, i, TaskState.FAILED, 0, WorkerId("w1")) for i in range(2)]
    changes = Changes.of(
        [job, Job(child, JobState.RUNNING, 4, sequence=2)],
        [*tasks, Task(task_id(child.job_id, 0), child.job_id, 0)],
        [Worker(WorkerId("w1"), "one", Resources(8000, 2**34), {"zone": "a"}, False, 9)],
        [UserBudget("ann", 4)],
        [ENDPOINT],
    )
    changes.usage[attempt_id(tasks[0].task_id, 0)] = AttemptUse(WorkerId("w1"), Usage(1500, 0, 0, 7, 0, 8, 0, 9, 10))
    for what, caller in (
        (JobSubmitted(SPEC), Caller("ann", "10.0.0.7")),
        (Assigned(tasks[0].task_id, WorkerId("w1")), NOBODY),
        (WorkerCordoned(WorkerId("w1"), "bad disk"), Caller("root", "unix")),
        (Requested("revoke users' tokens", "t-1"), Caller("root", "unix")),
        (Requested("make tokens", "/bob"), Caller("bob", "10.0.0.8")),
    ):
        changes.records.append(Record(1, 20, what, caller))
    store.commit(changes)
    store.save_ledger([LedgerRow(3_600_000, Owner("ann", "/ann/train", "cpu"), (1,) * 8, (0,) * 8, 4_000_000)])
    return tmp_path


def test_jobs_have_states_by_number_and_word(state_dir: Path) -> None:
    result = run_query(
        state_dir,
        "SELECT job_id, user, parent_id, state, state_word, band_word, failed_tasks, device_variant, command, error "
        "FROM jobs ORDER BY submitted_at_ms",
    )
    argv = '["python","train.py"]'
    assert result.rows == (
        ("/ann/train", "ann", None, 5, "failed", "production", 2, "v5p-8", argv, "task 0 failed: it's over"),
        ("/ann/train/eval", "ann", "/ann/train", 3, "running", "production", 0, "v5p-8", argv, ""),
    )
    assert not result.truncated


def test_tasks_workers_and_states_can_be_joined(state_dir: Path) -> None:
    result = run_query(
        state_dir,
        "SELECT task_id, word, cpu_millis, json_extract(attributes, '$.zone') AS zone FROM tasks "
        "JOIN workers USING (worker_id) JOIN states ON of = 'task' AND number = state ORDER BY task_index",
    )
    assert result.columns == ("task_id", "word", "cpu_millis", "zone")
    assert result.rows == (("/ann/train/0", "failed", 8000, "a"), ("/ann/train/1", "failed", 8000, "a"))
    result = run_query(state_dir, "SELECT namespace, json_extract(metadata, '$.role') FROM endpoints")
    assert result.rows == (("/ann/train", "main"),)


def test_the_views_are_documented_column_by_column(state_dir: Path) -> None:
    text = (Path(__file__).parents[4] / "docs" / "query.md").read_text()
    for view in VIEWS:
        section = text.split(f"## {view}\n")[1].split("\n## ")[0]
        for column in run_query(state_dir, f"SELECT * FROM {view}").columns:
            assert f"`{column}`" in section, f"docs/query.md: {view}.{column} is missing"


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM jobs", "CREATE TEMP TABLE x (y)", "ATTACH '/tmp/x.db' AS x", "PRAGMA journal_mode=DELETE",
        "VACUUM INTO '/tmp/x.db'", "BEGIN IMMEDIATE", "SELECT load_extension('x')", "SELECT * FROM job_env_vars",
        "WITH jobs AS (SELECT * FROM main.job_env_vars) SELECT * FROM jobs",
        "SELECT (SELECT env_vars FROM job_env_vars) FROM jobs", "SELECT payload FROM journal",
        "SELECT * FROM main.JOURNAL AS jobs", "SELECT * FROM replication", "SELECT sql FROM sqlite_master",
    ],
)  # fmt: skip
def test_nothing_can_be_changed_and_no_secret_read(state_dir: Path, sql: str) -> None:
    before = (state_dir / "iris.db").read_bytes()
    with pytest.raises(Denied, match="SELECT"):
        run_query(state_dir, sql)
    assert (state_dir / "iris.db").read_bytes() == before


def test_no_table_that_a_query_may_read_has_a_secret(state_dir: Path) -> None:
    connection = sqlite3.connect(state_dir / "iris.db")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    with_secret = {t for t in tables if "hunter2" in repr(connection.execute(f"SELECT * FROM {t}").fetchall())}
    connection.close()
    assert with_secret == {"job_env_vars", "journal"}
    assert not READABLE & with_secret


def test_names_of_any_case_and_ones_own_can_be_used(state_dir: Path) -> None:
    for sql in (
        "SELECT JOB_ID FROM Jobs",
        "WITH mine AS (SELECT * FROM jobs) SELECT count(*) FROM mine",
        "SELECT sum(n) FROM (SELECT count(*) AS n FROM TASKS GROUP BY job_id)",
        "SELECT a.job_id FROM jobs a JOIN jobs b ON a.job_id = b.parent_id WHERE EXISTS (SELECT 1 FROM workers)",
    ):
        assert run_query(state_dir, sql).rows


def test_a_query_that_takes_too_long_is_ended(state_dir: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(BudgetExceeded, match=r"longer than 0\.05 s"):
        run_query(state_dir, endless, time_limit_s=0.05)


def test_rows_beyond_the_limit_are_cut_off_and_that_is_told(state_dir: Path) -> None:
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    result = run_query(state_dir, many, max_rows=3)
    assert (result.rows, result.truncated) == (((1,), (2,), (3,)), True)
    assert not run_query(state_dir, f"{many} LIMIT 3", max_rows=3).truncated
    assert run_query(state_dir, f"{many} LIMIT 1001").truncated
    large = run_query(state_dir, "SELECT printf('%.*c', 1000000, 'x') FROM states, tasks", max_rows=100)
    assert (large.truncated, len(large.rows)) == (True, 16)
    for max_rows in (-1, 100_001):
        with pytest.raises(InvalidRequest, match=f"max_rows is {max_rows}; allowed are 1 to 100000"):
            run_query(state_dir, "SELECT 1", max_rows)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT 1; SELECT 2", "one statement"),
        ("  ", "the query is empty"),
        (
            "SELECT * FROM job",
            "no such table: job; there are the tables jobs, tasks, attempt_usage, workers, budgets, endpoints, "
            "states, events, ledger and audit",
        ),
        ("SELECT nme FROM jobs", "no such column: nme"),
        ("SELECT zeroblob(1000000000)", "too big"),
        ("SELECT ?", "binding"),
    ],
)
def test_errors_say_what_is_wrong(state_dir: Path, sql: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        run_query(state_dir, sql)


def test_a_query_sees_a_moment_and_holds_nobody(store: Store, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def commit_during_the_answer() -> float:
        # The query looks at the clock when it begins, and then in the middle of its work.
        nonlocal looks
        looks += 1
        if looks == 2:
            store.commit(Changes.of(budgets=[UserBudget("bob", 1)]))
        return 0.0

    slow = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10000) "
        "SELECT user FROM n, budgets WHERE i = 10000"
    )
    monkeypatch.setattr(query, "time", SimpleNamespace(monotonic=commit_during_the_answer))
    assert run_query(state_dir, slow).rows == (("ann",),)
    assert looks > 2
    assert run_query(state_dir, slow).rows == (("ann",), ("bob",))


def test_a_user_sees_of_others_what_there_is_and_not_what_it_says(state_dir: Path) -> None:
    jobs = "SELECT job_id, state_word, command, error, description FROM jobs ORDER BY submitted_at_ms LIMIT 1"
    own = run_query(state_dir, jobs, reader="ann").rows[0]
    assert own == ("/ann/train", "failed", '["python","train.py"]', "task 0 failed: it's over", "a try")
    assert run_query(state_dir, jobs, reader="bob").rows[0] == ("/ann/train", "failed", None, None, None)
    assert run_query(state_dir, "SELECT count(*), count(error), count(causes) FROM tasks", reader="bob").rows == (
        (3, 0, 0),
    )
    for reader, rows in (("ann", 1), ("an", 0), ("bob", 0), ("' OR '1'='1", 0)):
        for view in ("endpoints", "budgets"):
            assert len(run_query(state_dir, f"SELECT * FROM {view}", reader=reader).rows) == rows
        assert len(run_query(state_dir, "SELECT * FROM workers", reader=reader).rows) == 1


def test_an_admin_reads_who_did_what_and_others_read_of_their_jobs_and_of_workers(state_dir: Path) -> None:
    events = "SELECT kind, subject, worker_id, caller, address FROM events ORDER BY sequence"
    submitted = ("submitted", "/ann/train", None, "ann", "10.0.0.7")
    placed = ("placed", "/ann/train/0", "w1", None, None)
    assert run_query(state_dir, events).rows == (
        submitted, placed, ("cordoned", None, "w1", "root", "unix"),
        ("requested", "t-1", None, "root", "unix"), ("requested", "/bob", None, "bob", "10.0.0.8"),
    )  # fmt: skip
    cordoned = ("cordoned", None, "w1", None, None)
    assert run_query(state_dir, events, reader="ann").rows == (submitted, placed, cordoned)
    assert run_query(state_dir, events, reader="ben").rows == (cordoned,)
    audit = "SELECT caller, address, action, subject, reason FROM audit ORDER BY sequence"
    assert run_query(state_dir, audit).rows == (
        ("ann", "10.0.0.7", "submitted", "/ann/train", None), ("root", "unix", "cordoned", "w1", "bad disk"),
        ("root", "unix", "revoke users' tokens", "t-1", None), ("bob", "10.0.0.8", "make tokens", "/bob", None),
    )  # fmt: skip
    assert run_query(state_dir, audit, reader="ann").rows == (("ann", "10.0.0.7", "submitted", "/ann/train", None),)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT spec FROM job_specs",
        "SELECT * FROM main.jobs",
        "WITH jobs AS (SELECT * FROM main.jobs) SELECT error FROM jobs",
        "SELECT address FROM main.endpoints",
        "SELECT 1 FROM jobs WHERE EXISTS (SELECT 1 FROM main.job_specs s WHERE s.spec LIKE '%train%')",
        "SELECT sql FROM sqlite_temp_master",
        "SELECT * FROM jobs NATURAL JOIN main.job_specs",
        "SELECT rowid FROM main.endpoints",
    ],
)
def test_a_user_cannot_read_around_the_views(state_dir: Path, sql: str) -> None:
    for reader in ("ann", "bob"):
        with pytest.raises((Denied, InvalidRequest)):
            print(run_query(state_dir, sql, reader=reader).rows)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_the_same_columns_for_everybody(state_dir: Path, view: str) -> None:
    whole, part = (run_query(state_dir, f"SELECT * FROM {view}", reader=reader) for reader in (None, "bob"))
    assert whole.columns == part.columns
    assert whole.rows
