"""Programs as jobs."""

import pytest

from fray.errors import JobFailed
from fray.testing.fixture import LONG, BackendFixture
from fray.testing.signals import eventually
from fray.types import Entrypoint, JobStatus


class TestPrograms:
    """Entrypoint.from_binary."""

    def test_arguments_reach_it_as_they_are(self, fray_backend: BackendFixture) -> None:
        words = ["a b", "$HOME", "*", "", "it's", 'say "hi"', "--flag=x", "\u00fc"]
        job = fray_backend.shell('for word in "$@"; do printf "[%s]" "$word"; done; echo', *words)
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert job.logs() == "".join(f"[{word}]" for word in words) + "\n"

    def test_it_runs_in_its_workspace(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.shell("cat note.txt")
        job.wait(LONG)
        assert job.logs() == "from the workspace\n"

    def test_its_python_is_the_one_that_has_fray(self, fray_backend: BackendFixture) -> None:
        folder = fray_backend.directory / "bin"
        folder.mkdir()
        for name in ("python", "only-here"):
            (folder / name).write_text("#!/bin/sh\necho from the PATH of the job\n")
            (folder / name).chmod(0o755)
        environment = fray_backend.environment({"PATH": f"{folder}:/usr/bin:/bin"})
        job = fray_backend.shell('python -c "import fray; print(fray.__name__)"; only-here', environment=environment)
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert job.logs() == "fray\nfrom the PATH of the job\n"

    def test_its_exit_code(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.shell("echo the last words; exit 7")
        with pytest.raises(JobFailed) as caught:
            job.wait(LONG)
        assert caught.value.exit_code == 7
        assert caught.value.job_id == job.job_id
        assert "7" in str(caught.value)
        assert job.logs() == "the last words\n"
        assert job.status() is JobStatus.FAILED

    def test_one_ended_by_a_signal(self, fray_backend: BackendFixture) -> None:
        with pytest.raises(JobFailed) as caught:
            fray_backend.shell("kill -SEGV $$").wait(LONG)
        assert caught.value.exit_code == -11
        assert "SIGSEGV" in str(caught.value) or "signal 11" in str(caught.value)

    def test_one_that_does_not_exist_fails_the_job_and_is_named(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.submit(fray_backend.request(Entrypoint.from_binary("no-such-program", ["x"])))
        with pytest.raises(JobFailed, match="no-such-program"):
            job.wait(LONG)

    def test_logs_have_both_streams_each_in_order(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.shell("for i in 1 2 3; do echo out $i; echo err $i >&2; done; printf 'no newline'")
        job.wait(LONG)
        lines = job.logs().splitlines()
        assert [line for line in lines if not line.startswith("err")] == ["out 1", "out 2", "out 3", "no newline"]
        assert [line for line in lines if line.startswith("err")] == ["err 1", "err 2", "err 3"]

    def test_logs_while_it_runs(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("go-on")
        job = fray_backend.shell('echo begun; while ! [ -e "$1" ]; do sleep 0.02; done; echo done', flag.path)
        eventually(lambda: job.logs() == "begun\n", "the first line is in the log of the running job")
        eventually(lambda: job.status() is JobStatus.RUNNING, "it is known to run")
        flag.set()
        job.wait(LONG)
        assert job.logs() == "begun\ndone\n"

    def test_output_that_is_not_text(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.shell(r"printf 'a\377b\n'")
        assert job.wait(LONG) is JobStatus.SUCCEEDED
        assert job.logs() == "a\ufffdb\n"

    def test_many_lines(self, fray_backend: BackendFixture) -> None:
        job = fray_backend.shell("seq 20000")
        job.wait(LONG)
        assert job.logs() == "".join(f"{i}\n" for i in range(1, 20001))
