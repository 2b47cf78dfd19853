"""What a task sees of itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from iris import notice, preemption, report_checkpoint
from iris.client.context import get_iris_ctx, iris_ctx
from rigging.errors import Conflict, NotFound

VARIABLES = {
    "IRIS_JOB_ID": "/ann/train",
    "IRIS_CONTROLLER_ADDRESS": "127.0.0.1:1",
    "IRIS_TASK_ID": "/ann/train/3",
    "IRIS_ATTEMPT_ID": "/ann/train/3:2",
    "IRIS_WORKER_ID": "w1",
    "IRIS_PORT_HTTP": "8080",
}


def test_a_task_knows_who_it_is_and_only_inside_a_job_is_there_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("IRIS_")]:
        monkeypatch.delenv(name)
    assert get_iris_ctx() is None
    with pytest.raises(Conflict, match="iris job run"):
        iris_ctx()
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    context = iris_ctx()
    assert (context.job_id, context.task_id, context.task_attempt) == ("/ann/train", "/ann/train/3", 2)
    assert (context.worker_id, context.ports, context.get_port("HTTP")) == ("w1", {"http": 8080}, 8080)
    with pytest.raises(NotFound, match=r"task /ann/train/3 has no port 'x'; it has http"):
        context.get_port("x")
    assert (context.client.full_name_prefix(), context.client.user) == ("/ann/train", "ann")
    assert iris_ctx() is context


def test_a_checkpoint_that_cannot_be_reported_is_only_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("IRIS_JOB_ID", raising=False)
    report_checkpoint()
    assert not caplog.text, "outside of a task it has no effect"
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    report_checkpoint()
    assert "the checkpoint is not reported to the cluster" in caplog.text


def test_an_image_without_grpc_needs_it_for_checkpoints_only(tmp_path: Path) -> None:
    """A notice needs the standard library alone; a checkpoint says what is missing."""
    (tmp_path / "error").write_text("")
    script = "import iris; print(iris.preemption()); iris.report_checkpoint()"
    source = str(Path(notice.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({source!r}); {script}"],
        env=VARIABLES | {"IRIS_ERROR_FILE": str(tmp_path / "error")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "None\n"
    assert "the checkpoint is not reported to the cluster: No module named" in done.stderr
    assert "pip install marin-iris" in done.stderr


def test_a_task_asks_for_the_notice_of_its_preemption(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(notice, "_LOOK_S", 0.0)
    for name, value in (("_path", None), ("_found", None), ("_next_look_s", 0.0)):
        monkeypatch.setattr(notice, name, value)
    monkeypatch.delenv("IRIS_ERROR_FILE", raising=False)
    assert preemption() is None, "outside of a task there is none"
    monkeypatch.setattr(notice, "_path", None)
    monkeypatch.setenv("IRIS_ERROR_FILE", str(tmp_path / "error"))
    assert preemption() is None
    place = tmp_path / "error.notice"
    assert place.read_text() == "", "its worker knows that it asks"
    place.write_text("band 1764336000.250\n")
    assert preemption() == ("band", 1764336000.25)
    place.unlink()
    assert preemption() is not None, "it stays"
