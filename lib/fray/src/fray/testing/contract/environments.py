"""Environments of jobs: variables, packages, extras, budgets, resources."""

import importlib
import logging
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from fray.testing.fixture import LONG, BackendFixture
from fray.testing.signals import eventually
from fray.types import Entrypoint, JobStatus, ResourceConfig
from fray.waiting import wait_all
from rigging.errors import InvalidRequest
from rigging.filesystem.budget import current_budget, mirror_budget

PROJECT = """\
[project]
name = "contract-project"
version = "1"
requires-python = ">=3.11"
dependencies = []

[project.optional-dependencies]
probe = ["fray-contract-probe @ {url}"]

[tool.uv]
package = false
"""


def make_wheel(directory: Path) -> Path:
    """Build a wheel of one module that can be installed without a network."""
    wheel = directory / "fray_contract_probe-1.0-py3-none-any.whl"
    info = "fray_contract_probe-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("fray_contract_probe.py", "ANSWER = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: fray-contract-probe\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            f"{info}/RECORD", f"fray_contract_probe.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    return wheel


class TestEnvironments:
    """EnvironmentConfig, and resources that have an effect."""

    def test_variables_reach_programs(self, fray_backend: BackendFixture) -> None:
        environment = fray_backend.environment({"GREETING": "hi there", "EMPTY": ""})
        job = fray_backend.shell('echo "[$GREETING][${EMPTY-unset}]"', environment=environment)
        job.wait(LONG)
        assert job.logs() == "[hi there][]\n"

    def test_variables_and_callables(
        self, fray_backend: BackendFixture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("FRAY_CONTRACT_OTHER", raising=False)
        monkeypatch.setenv("FRAY_CONTRACT_SAME", "1")
        flag = fray_backend.flag("seen")

        def look() -> None:
            flag.set(os.environ.get("FRAY_CONTRACT_OTHER", "unset"))

        environment = fray_backend.environment({"FRAY_CONTRACT_OTHER": "2", "FRAY_CONTRACT_SAME": "1"})
        with caplog.at_level(logging.WARNING):
            fray_backend.call(look, environment=environment).wait(LONG)
        if fray_backend.capabilities.separate_processes:
            assert flag.text() == "2"
        else:
            assert flag.text() == "unset"
            assert "not applied to callables" in caplog.text
            assert "FRAY_CONTRACT_OTHER" in caplog.text
            assert "FRAY_CONTRACT_SAME" not in caplog.text
        assert "FRAY_CONTRACT_OTHER" not in os.environ

    def test_callables_and_the_workspace(
        self, fray_backend: BackendFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flag = fray_backend.flag("seen")
        monkeypatch.chdir(tmp_path)
        here = os.getcwd()

        def look() -> None:
            flag.set(Path("note.txt").read_text() if os.path.exists("note.txt") else os.getcwd())

        fray_backend.call(look).wait(LONG)
        assert flag.text() == ("from the workspace\n" if fray_backend.capabilities.separate_processes else here)

    def test_pip_packages(self, fray_backend: BackendFixture, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        requirement = f"fray-contract-probe @ {make_wheel(tmp_path).as_uri()}"
        environment = fray_backend.environment(pip_packages=[requirement])
        self.check_probe(fray_backend, environment=environment, caplog=caplog, named="fray-contract-probe")

    def test_extras(self, fray_backend: BackendFixture, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        project = tmp_path / "project"
        project.mkdir()
        (project / "pyproject.toml").write_text(PROJECT.format(url=make_wheel(tmp_path).as_uri()))
        if uv := shutil.which("uv"):
            subprocess.run([uv, "lock", "--quiet", "--offline"], cwd=project, check=True)
        environment = fray_backend.environment(extras=["probe"], workspace=project)
        self.check_probe(fray_backend, environment=environment, caplog=caplog, named="probe")

    @staticmethod
    def check_probe(
        backend: BackendFixture, *, environment: object, caplog: pytest.LogCaptureFixture, named: str
    ) -> None:
        """Check that the package can be imported, or that a warning names it as missing."""
        script = "import fray_contract_probe; print(fray_contract_probe.ANSWER)"
        request = backend.request(Entrypoint.from_binary("python", ["-c", script]), environment=environment)
        # Plain values: a project's environment may be without fray.
        path = backend.flag("imported").path

        def look() -> None:
            Path(path).write_text(str(importlib.import_module("fray_contract_probe").ANSWER))

        with caplog.at_level(logging.WARNING):
            program, called = backend.submit(request), backend.call(look, environment=environment)
            statuses = wait_all([program, called], LONG, raise_on_failure=False)
        if backend.capabilities.installs_packages:
            assert statuses == [JobStatus.SUCCEEDED, JobStatus.SUCCEEDED], program.logs() + called.logs()
            assert program.logs().endswith("42\n")
            assert Path(path).read_text() == "42"
        else:
            assert statuses == [JobStatus.FAILED, JobStatus.FAILED]
            assert "fray_contract_probe" in program.logs()
            warned = [record.getMessage() for record in caplog.records if "not installed" in record.getMessage()]
            assert len(warned) == 2
            assert all(named in warning for warning in warned)

    def test_what_no_machine_could_run(self, fray_backend: BackendFixture) -> None:
        huge = ResourceConfig.with_cpu(cpu=1_000_000, ram="128m", disk="16m")
        request = fray_backend.request(Entrypoint.from_binary("true"), resources=huge)
        if fray_backend.capabilities.enforces_resources:
            with pytest.raises(InvalidRequest, match=request.name):
                fray_backend.submit(request)
        else:
            assert fray_backend.submit(request).wait(LONG) is JobStatus.SUCCEEDED

    def test_a_job_and_the_processors_that_another_has(self, fray_backend: BackendFixture) -> None:
        everything = ResourceConfig.with_cpu(cpu=fray_backend.harness.cpus, ram="64m", disk="16m")
        end, first_ended, second_began = (fray_backend.flag(name) for name in ("end", "first-ended", "second-began"))
        script = 'while ! [ -e "$1" ]; do sleep 0.02; done; : > "$2"'
        first = fray_backend.shell(script, end.path, first_ended.path, resources=everything)
        eventually(lambda: first.status() is JobStatus.RUNNING, "the first runs")
        script = 'test -e "$1" && echo after || echo beside; : > "$2"'
        second = fray_backend.shell(script, first_ended.path, second_began.path, resources=everything)
        if fray_backend.capabilities.enforces_resources:
            assert second.status() is JobStatus.PENDING
        else:
            second_began.wait()
        end.set()
        assert wait_all([first, second], LONG) == [JobStatus.SUCCEEDED, JobStatus.SUCCEEDED]
        assert second.logs() == ("after\n" if fray_backend.capabilities.enforces_resources else "beside\n")

    def test_what_is_left_of_a_transfer_budget_goes_along(self, fray_backend: BackendFixture) -> None:
        flag = fray_backend.flag("left")

        def look() -> None:
            flag.set(str(current_budget().bytes_left))

        with mirror_budget(3) as budget:
            budget.record(2**30, "gs://elsewhere/data")
            called = fray_backend.call(look)
            program = fray_backend.shell('echo "$MARIN_MIRROR_BUDGET_GB"')
        called.wait(LONG)
        assert flag.text() == str(2 * 2**30)
        program.wait(LONG)
        assert float(program.logs()) == 2.0
