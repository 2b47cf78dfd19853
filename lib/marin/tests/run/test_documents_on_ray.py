"""The Ray code of the documents, word for word, on a real cluster with a TPU's resources; each `...` is filled in."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.ray_harness import RayCluster
from rigging.filesystem import filesystem
from support.rigging.gcs_server import GcsServer

pytestmark = [pytest.mark.soak, pytest.mark.ray, pytest.mark.process, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[4]
DOCUMENTS = Path(__file__).parent / "documents"
LOCKFILE = Path("/tmp/libtpu_lockfile")


@pytest.fixture(scope="module")
def store() -> Iterator[GcsServer]:
    with GcsServer() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment().items():
            patch.setenv(name, value)
        server.create_bucket("reddit")
        yield server


@pytest.fixture(scope="module")
def cluster(store: GcsServer) -> Iterator[RayCluster]:
    with RayCluster(cpus=4).running() as cluster:
        cluster.add_node("tpu", {"TPU": 4, "TPU-v4-8-head": 1}, cpus=8)
        yield cluster


def blocks(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def filled(text: str, *fillings: tuple[str, str]) -> str:
    """Return the text with the first `...` after each of these beginnings replaced."""
    for before, filling in fillings:
        head, found, tail = text.partition(before)
        assert found, before
        gap, dots, rest = tail.partition("...")
        assert dots, f"no ... after {before}"
        text = head + before + gap + filling + rest
    return text


def run(tmp_path: Path, script: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def test_plain_functions_and_functions_that_ask_for_cpus(cluster: RayCluster, tmp_path: Path) -> None:
    plain, cpus = (text for text in blocks(DOCUMENTS / "internal-developers.md") if "TPU" not in text)
    script = "import ray\nray.init(log_to_driver=False)\n" + filled(plain, ("def my_function():", "return 'it ran'"))
    script += "print(result)\n" + filled(
        cpus, ("def my_cpu_job():", "return ray.get_runtime_context().get_assigned_resources()['CPU']")
    )
    script += "print(ray.get(my_cpu_job.remote()))\n"
    assert run(tmp_path, script).split("\n")[:2] == ["it ran", "4.0"]


def test_functions_that_ask_for_a_tpu(cluster: RayCluster, tmp_path: Path) -> None:
    if LOCKFILE.exists():
        pytest.skip("NOT TESTED: a TPU of this machine is in use")
    ask, removing = (text for text in blocks(DOCUMENTS / "internal-developers.md") if "TPU" in text)
    body = (
        "open('/tmp/libtpu_lockfile', 'w').close(); context = ray.get_runtime_context(); "
        "return context.get_assigned_resources()"
    )
    start = "import ray\nray.init(log_to_driver=False)\n"
    end = "import json; print(json.dumps(ray.get(my_tpu_job.remote())))\n"
    try:
        given = json.loads(run(tmp_path, start + filled(ask, ("def my_tpu_job():", body)) + end))
        assert (given["CPU"], given["TPU"], given["TPU-v4-8-head"]) == (8, 4, 1)
        assert LOCKFILE.exists(), "nobody removed it"
        assert json.loads(run(tmp_path, start + filled(removing, ("def my_tpu_job():", body)) + end)) == given
        assert not LOCKFILE.exists()
    finally:
        LOCKFILE.unlink(missing_ok=True)


LOCKED_WORK = """
import os, sys, ray
from marin.run import in_subprocess
from marin.utils import remove_tpu_lockfile_on_exit

place = sys.argv[0] + ".lock"
ray.init(log_to_driver=False)

@remove_tpu_lockfile_on_exit(lockfile=place)
@ray.remote(num_cpus=8, resources={"TPU": 4, "TPU-v4-8-head": 1})
def over():
    open(place, "w").close()
    return ray.get_runtime_context().get_assigned_resources()["TPU"]

@remove_tpu_lockfile_on_exit(lockfile=place)
@ray.remote(num_returns="streaming")
def steps():
    open(place, "w").close()
    yield os.path.exists(place)
    yield os.path.exists(place)

@ray.remote(num_cpus=8, resources={"TPU": 4, "TPU-v4-8-head": 1})
@in_subprocess
def apart():
    return os.getppid()

@ray.remote(num_cpus=8, resources={"TPU": 4, "TPU-v4-8-head": 1})
@in_subprocess
def fails():
    raise ValueError("no such device")

print(ray.get(over.remote()), os.path.exists(place))
print([ray.get(step) for step in steps.remote()], os.path.exists(place))
print(ray.get(apart.remote()) != ray.get(apart.remote()))
try:
    ray.get(fails.remote())
except ValueError as error:
    print("ValueError: no such device" in str(error))
"""


def test_the_lock_file_over_ray_remote_and_work_in_a_process_of_its_own(cluster: RayCluster, tmp_path: Path) -> None:
    assert run(tmp_path, LOCKED_WORK).split("\n")[:4] == ["4.0 False", "[True, True] False", "True", "True"]


def test_the_task_queue(cluster: RayCluster, tmp_path: Path) -> None:
    """The block runs, and again: then it makes nothing."""
    texts = {f"thread-{number}.txt": text for number, text in enumerate(["you idiot", "good day", "kill yourself"])}
    fs = filesystem("gs")
    for name, text in texts.items():
        fs.pipe_file(f"reddit/raw/{name}", text.encode())
    (block,) = blocks(DOCUMENTS / "infra-readme.md")
    read = "import fsspec\n    texts = fsspec.open(gcs_reddit_input, 'rt').open().read().splitlines()"
    write = "with fsspec.open(gcs_toxicity_output, 'wt').open() as file: json.dump(scores, file)"
    script = filled(
        block,
        ("# Read and validate `gcs_reddit_input`", read),
        ("# Run toxicity classifier and get scores", "scores = toxicity_classifier(texts)"),
        ("# Write *entire* output back to GCS at once", f"import json\n    {write}"),
        ("gcs_reddit_inputs: List[str] = [", ", ".join(repr(f"gs://reddit/raw/{name}") for name in texts)),
        ('gcs_toxicity_outputs: List[str] = ["<', "@@@"),
        ("# Cleanup -- Write Successes / Failures to GCS", "print(task_successes)"),
    ).replace('"<@@@>"', "input_path.replace('/raw/', '/scores/')")
    outcome = str({f"gs://reddit/raw/{name}": True for name in texts})
    assert outcome in run(tmp_path, script)
    scores = {name: json.loads(fs.cat_file(f"reddit/scores/{name}")) for name in texts}
    assert [scores[name][0] > 0.5 for name in texts] == [True, False, True]
    made = {name: fs.info(f"reddit/scores/{name}")["generation"] for name in texts}
    assert outcome in run(tmp_path, script)
    fs.invalidate_cache()
    assert {name: fs.info(f"reddit/scores/{name}")["generation"] for name in texts} == made


def test_the_operators_check(cluster: RayCluster, store: GcsServer) -> None:
    check = [sys.executable, "tests/test_ray_cluster.py"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 of 8 tasks are well, on 2 distinct nodes" in done.stdout
    filesystem("gs").pipe_file("reddit/note.txt", b"seen by all")
    words = ["--tasks", "3", "--file", "gs://reddit/note.txt"]
    done = subprocess.run([*check, *words], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert "3 of 3 tasks are well" in done.stdout, done.stdout + done.stderr
