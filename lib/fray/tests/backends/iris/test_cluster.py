"""The Iris client of fray on a real cluster on this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.backends.iris import IrisBackend
from fray.client import GivesNewOutput
from fray.testing.signals import eventually
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, ResourceConfig
from iris.client import IrisClient
from rigging.errors import InvalidRequest

pytestmark = pytest.mark.process

LONG = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IrisBackend]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IRIS_JOB_ID", "IRIS_CONTROLLER_ADDRESS"):
            patch.delenv(name, raising=False)
        patch.setenv("IRIS_STATE_DIR", str(tmp_path_factory.mktemp("iris")))
        iris = IrisClient.local()
        backend = IrisBackend(iris)
        try:
            yield backend
        finally:
            iris.stop_cluster(stop_jobs=True)
            backend.shutdown()


@pytest.fixture
def environment(tmp_path: Path) -> EnvironmentConfig:
    (tmp_path / "note.txt").write_text("from the workspace\n")
    return EnvironmentConfig(workspace=str(tmp_path), env_vars={"GREETING": "hi"})


def shell(name: str, script: str, **fields: Any) -> JobRequest:
    entrypoint = Entrypoint.from_binary("sh", ["-c", script])
    return JobRequest(name, entrypoint, ResourceConfig.with_cpu(cpu=0.1, ram="64m"), **fields)


def test_new_output_comes_once_outside(cluster: IrisBackend, environment: EnvironmentConfig, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    script = f"echo $IRIS_TASK_INDEX; until [ -e {go_on} ]; do sleep 0.02; done; echo last >&2"
    job = cluster.submit(shell("speaks", script, environment=environment, replicas=2))
    assert isinstance(job, GivesNewOutput)
    seen: dict[int | None, str] = {}
    eventually(lambda: seen.update(job.new_output()) or seen == {0: "0\n", 1: "1\n"}, "both have begun")
    assert job.new_output() == {}
    go_on.touch()
    job.wait(LONG)
    assert job.new_output(ended=True) == {0: "last\n", 1: "last\n"}
    assert job.new_output(ended=True) == {}


def test_what_no_worker_could_run_is_refused_at_once(cluster: IrisBackend, environment: EnvironmentConfig) -> None:
    entrypoint = Entrypoint.from_binary("true")
    with pytest.raises(InvalidRequest, match="/tpu can never run"):
        cluster.submit(JobRequest("tpu", entrypoint, ResourceConfig.with_tpu("v5p-8"), environment))
    with pytest.raises(InvalidRequest, match="'a b' is not a valid name of a job"):
        cluster.submit(JobRequest("a b", entrypoint, environment=environment))
