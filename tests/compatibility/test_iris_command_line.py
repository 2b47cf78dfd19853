"""`iris` as older scripts call it."""

from types import SimpleNamespace

import pytest

from iris.cli import main
from iris.cli.context import CliContext
from iris.client import Job, LogLine, UserBudgetStatus
from iris.client import JobStatus as Status
from iris.cluster.constraints import WellKnownAttribute
from iris.cluster.types import CoschedulingConfig, JobState, PriorityBand, gpu_device, tpu_device
from iris.rpc.logfilter import LineChoice, LineFilter


class Cluster:
    """Notes what is asked of it."""

    address, user = "127.0.0.1:1", "ann"

    def __init__(self):
        self.submitted, self.stopped, self.budgets_set, self.logs_asked = {}, [], [], {}
        self.operator = self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, entrypoint, name, resources, environment, **limits):
        self.submitted = {"entrypoint": entrypoint, "resources": resources, "environment": environment, **limits}
        return Job(self, "/ann/j")

    def full_name_prefix(self):
        return "/ann"

    def list_jobs(self, prefix="", states=(), limit=0):
        names = ("/ann/sweep-1", "/ann/train", "/ann/sweep-2")
        return [Status(name, JobState.RUNNING) for name in names if name.startswith(prefix.removesuffix("*"))]

    def status(self, job_id):
        return Status(job_id, JobState.RUNNING)

    def read_logs(self, task_id, **asked):
        self.logs_asked = asked
        lines = (b"INFO starting", b"ERROR oops", b"  of a traceback", b"DEBUG done")
        every = (LogLine("/ann/train/0", 0, False, 1, text) for text in lines)
        wanted = LineFilter(LineChoice(level=asked["level"]))
        for line in every:
            yield from wanted.take(line)
        yield from wanted.finish()

    def stop_many(self, job_ids, reason="", *, include_children=True):
        from iris.client import Stopped

        self.stopped.append((list(job_ids), include_children))
        return [Stopped((job_id,)) for job_id in job_ids]

    def wait_jobs(self, jobs, any=False, timeout=None):
        return [Status(str(job), JobState.KILLED) for job in jobs]

    def poll_jobs(self, job_ids, *, any=False, seconds=0):
        return [Status(str(job), JobState.KILLED) for job in job_ids], True

    def list_tasks(self, job_id, limit=0):
        return []

    def budgets(self, name=""):
        return [UserBudgetStatus(name, 1.0, PriorityBand.BATCH, 0.0)]

    def set_budget(self, name, *, max_weight, max_band):
        self.budgets_set.append((name, max_weight, max_band))


@pytest.fixture
def cluster():
    return Cluster()


class Context(CliContext):
    """Commands reach the test's cluster."""

    def __init__(self, reached):
        super().__init__()
        self._reached = reached

    def target(self):
        return SimpleNamespace(inside=1, is_local=False, paths=None, name="c")

    def connect(self, target, workspace=None, **options):
        return self._reached


@pytest.fixture
def iris(cluster):
    return lambda *words: main.run(list(words), Context(cluster))


@pytest.mark.compatible("iris job run --tpu v5litepod-16: the whole slice as one gang", since="0.1.0")
def test_a_slice_is_a_gang(cluster, iris):
    assert iris("job", "run", "--no-wait", "--tpu", "v5litepod-16", "--", "true") == 0
    assert cluster.submitted["replicas"] == 4
    assert cluster.submitted["coscheduling"] == CoschedulingConfig(WellKnownAttribute.TPU_NAME)
    assert iris("job", "run", "--no-wait", "--tpu", "v5litepod-16", "--replicas", "1", "--", "true") == 0
    assert cluster.submitted["replicas"] == 1
    assert iris("job", "run", "--no-wait", "--", "true") == 0
    assert (cluster.submitted["replicas"], cluster.submitted["coscheduling"]) == (1, None)


@pytest.mark.compatible("iris job run --reserve [COUNT:]DEVICE --env-vars --enable-extra-resources", since="0.1.0")
def test_options_of_a_run(cluster, iris):
    words = ["--reserve", "2:v5p-8", "--reserve", "H100x8", "--env-vars", "A", "1", "--enable-extra-resources"]
    assert iris("job", "run", "--no-wait", *words, "--", "true") == 0
    assert cluster.submitted["reservation"] == [tpu_device("v5p-8"), tpu_device("v5p-8"), gpu_device("H100", 8)]
    assert not cluster.submitted["reserve"]
    assert cluster.submitted["environment"].env_vars["A"] == "1"
    assert iris("job", "run", "--no-wait", "--reserve", "--tpu", "v5p-8", "--", "true") == 0
    assert cluster.submitted["reserve"]
    assert cluster.submitted["reservation"] == []


@pytest.mark.compatible("iris job kill [--include-children/--no-include-children] JOB", since="0.1.0")
def test_a_job_is_killed(cluster, iris):
    assert iris("job", "kill", "--no-include-children", "/ann/train") == 0
    assert iris("job", "kill", "/ann/train") == 0
    assert cluster.stopped == [(["/ann/train"], False), (["/ann/train"], True)]


@pytest.mark.compatible("iris job list --prefix", since="0.1.0")
def test_jobs_of_a_prefix(cluster, iris, capsys):
    assert iris("job", "list", "--prefix", "/ann/sweep", "--json") == 0
    shown = capsys.readouterr().out
    assert "/ann/sweep-1" in shown
    assert "/ann/sweep-2" in shown
    assert "/ann/train" not in shown


@pytest.mark.compatible("iris job logs --level --since-ms", since="0.1.0")
def test_lines_of_a_level(cluster, iris, capfd):
    assert iris("job", "logs", "--level", "warning", "--since-ms", "5000", "/ann/train") == 0
    shown = capfd.readouterr().out
    assert "ERROR oops" in shown
    assert "of a traceback" in shown
    assert "starting" not in shown
    assert "done" not in shown
    assert cluster.logs_asked["since"] == 5.0


@pytest.mark.compatible("iris user budget set --limit --max-band", since="0.1.0")
def test_a_budget(cluster, iris):
    assert iris("user", "budget", "set", "ann", "--limit", "64", "--max-band", "production") == 0
    assert cluster.budgets_set == [("ann", 64.0, PriorityBand.PRODUCTION)]


@pytest.mark.compatible("iris cluster controller serve --host", since="0.1.0")
def test_a_controller_listens_where_it_is_told(iris, monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr("iris.local.standalone.serve_standalone", lambda *_, **options: asked.update(options))
    assert iris("cluster", "controller", "serve", "--host", "127.0.0.2", "--state-dir", str(tmp_path)) == 0
    assert asked["host"] == "127.0.0.2"


@pytest.mark.compatible("iris --traceback", since="0.1.0")
def test_a_traceback_is_shown(capfd):
    class Failing(CliContext):
        def target(self):
            raise ValueError("of the test")

    assert main.run(["--traceback", "job", "list"], Failing()) != 0
    assert "Traceback" in capfd.readouterr().err
