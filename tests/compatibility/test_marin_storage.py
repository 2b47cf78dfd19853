"""Buckets that older executors wrote: their outputs are found, and nothing of them is changed."""

import json
import os

import pytest

from marin.execution import Executor, ExecutorStep, this_output_path, versioned
from marin.execution.executor_step_status import STATUS_FAILED, STATUS_SUCCESS, StatusFile
from marin.execution.step_runner import StepRunner, check_cache
from marin.execution.step_spec import StepSpec
from rigging.filesystem import filesystem

ran = []


def run_it(config):
    ran.append(config["n"])


@pytest.fixture(autouse=True)
def nothing_has_run():
    ran.clear()


def step(**more):
    return ExecutorStep(name="raw/data", fn=run_it, config={"out": this_output_path(), "n": versioned(1)}, **more)


def path_of(one, prefix):
    executor = Executor(prefix, f"{prefix}/experiments")
    executor.compute_version(one, is_pseudo_dep=False)
    return executor.output_paths[one]


def write(path, files):
    os.makedirs(path, exist_ok=True)
    for name, content in files.items():
        with open(os.path.join(path, name), "w") as file:
            file.write(content)


def tree(root):
    """What lies below a directory, with the times of its files."""
    files = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                files[path] = (file.read(), os.stat(path).st_mtime_ns)
    return files


def events(*statuses):
    """A status file of the second generation."""
    lines = [{"date": "2024-09-28T13:29:20.780705", "status": status, "message": None} for status in statuses]
    return "".join(json.dumps(line) + "\n" for line in lines)


def found_unchanged(prefix, path, one):
    before = tree(path)
    Executor(prefix, f"{prefix}/experiments").run([one])
    assert tree(path) == before
    return not ran


@pytest.mark.compatible(".executor_status as JSON lines", since="0.1.0")
def test_the_last_event_of_a_status_counts(prefix):
    one = step()
    path = path_of(one, prefix)
    write(path, {".executor_status": events("WAITING", "RUNNING", "SUCCESS")})
    assert StatusFile(path, "me").status == STATUS_SUCCESS
    assert found_unchanged(prefix, path, one)
    write(path, {".executor_status": events("WAITING", "RUNNING", "FAILED") + '{"cut'})
    assert StatusFile(path, "me").status == STATUS_FAILED
    Executor(prefix, f"{prefix}/experiments").run([one])
    assert ran == [1], "what failed is tried again"


@pytest.mark.compatible(".executor_info without some keys", since="0.1.0")
@pytest.mark.parametrize(
    "left_out", [("version",), ("dependencies", "output_path"), ("override_output_path", "config")]
)
def test_infos_of_older_releases(prefix, left_out, caplog):
    one = step()
    executor = Executor(prefix, f"{prefix}/experiments")
    executor.compute_version(one, is_pseudo_dep=False)
    info = {
        "name": one.name,
        "fn_name": "experiments.old.run_it",
        "config": {"n": 1},
        "description": "an older release wrote this, too",
        "override_output_path": None,
        "version": executor.versions[one],
        "dependencies": [],
        "output_path": executor.output_paths[one],
    }
    kept = {name: value for name, value in info.items() if name not in left_out}
    path = executor.output_paths[one]
    write(path, {".executor_status": "SUCCESS", ".executor_info": json.dumps(kept)})
    assert found_unchanged(prefix, path, one)
    assert "unreadable" not in caplog.text


@pytest.mark.compatible("SUCCESS files of the first generation", since="0.1.0")
@pytest.mark.parametrize("beside", [False, True])
def test_a_success_file_is_a_status(prefix, beside):
    one = step().with_output_path("raw/data-old/")
    path = f"{prefix}/raw/data-old"
    write(path, {"part-0.jsonl": "{}"})
    write(f"{prefix}/raw", {"data-old.SUCCESS": ""}) if beside else write(path, {"SUCCESS": ""})
    assert found_unchanged(prefix, path, one)
    assert StatusFile(path, "me").status == STATUS_SUCCESS
    spec = StepSpec(name="x", override_output_path=path, fn=ran.append)
    assert check_cache(spec)
    StepRunner().run([spec])
    assert ran == []
    write(path, {".executor_status": "FAILED"})
    Executor(prefix, f"{prefix}/experiments").run([one])
    assert ran == [1], "a later executor's status counts more"


@pytest.mark.compatible("SUCCESS files of the first generation, on object stores", since="0.1.0")
def test_a_success_file_in_a_bucket(gcs_server, tmp_path):
    bucket = f"gs://old-us-central2/{tmp_path.name}"
    fs = filesystem("gs")
    fs.pipe({f"{bucket}/raw/old/part-0": b"{}", f"{bucket}/raw/old/SUCCESS": b"", f"{bucket}/raw/other.SUCCESS": b""})
    fs.invalidate_cache()
    steps = [step().with_output_path(f"{bucket}/raw/old/"), step().with_output_path(f"{bucket}/raw/other")]
    before = sorted(fs.find(f"{bucket}/raw"))
    Executor(str(tmp_path / "p"), str(tmp_path / "infos")).run(steps)
    fs.invalidate_cache()
    assert ran == []
    assert sorted(fs.find(f"{bucket}/raw")) == before
