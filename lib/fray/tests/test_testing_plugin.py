"""The users' view of `fray.testing`: fixtures, the option, a backend of their own held to the contract."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

CONFTEST = 'pytest_plugins = ["fray.testing.plugin"]\n'
TEST = """
from fray import Entrypoint, JobRequest, current_client

def test_it(fray_client):
    assert current_client() is fray_client
    assert fray_client.submit(JobRequest("job", Entrypoint.from_callable(print, ["hi"]))).wait(60) == "succeeded"
"""


def pytest_in(directory: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest as a user does, with a configuration of its own."""
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *options]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = {**outside, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # quicker
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_a_test_runs_on_the_local_backend_on_its_modules_and_on_others_by_option(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST)
    done = pytest_in(tmp_path)
    assert "test_it[local] PASSED" in done.stdout, done.stdout
    assert "1 passed" in done.stdout
    (tmp_path / "test_mine.py").write_text('FRAY_BACKENDS = ["local-process"]\n' + TEST)
    assert "test_it[local-process] PASSED" in pytest_in(tmp_path).stdout
    done = pytest_in(tmp_path, "--fray-backend", "local", "--fray-backend=local-admission")
    for name in ("local", "local-admission"):
        assert f"test_it[{name}] PASSED" in done.stdout, done.stdout
    assert "local-process" not in done.stdout


def test_an_unknown_backend_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST)
    done = pytest_in(tmp_path, "--fray-backend", "local,slurm")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "fray backend 'slurm' is not known; known: local," in done.stderr


USES_RAY = "import ray\n" + TEST


@pytest.mark.soak
@pytest.mark.ray
def test_a_module_may_import_ray_when_the_backend_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(USES_RAY)
    done = pytest_in(tmp_path, "--fray-backend", "ray", "-rs")
    if "NOT TESTED on Ray" in done.stdout:
        pytest.skip(done.stdout)
    assert "test_it[ray] PASSED" in done.stdout, done.stdout


@pytest.mark.ray
def test_ray_imported_too_early_is_told_instead_of_waited_for(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text('FRAY_BACKENDS = ["ray"]\n' + USES_RAY)
    done = pytest_in(tmp_path, "-rs")
    if "NOT TESTED on Ray" in done.stdout:
        pytest.skip(done.stdout)
    if "PASSED" in done.stdout:
        pytest.skip("NOT TESTED: the only address of this machine is loopback, so that it is never too early")
    assert "Ray was imported before its test cluster" in done.stdout, done.stdout


FORGETFUL = """
from fray.backends.local import LocalClient
from fray.testing.local_harness import LocalHarness

class ForgetfulClient(LocalClient):
    def submit(self, request, adopt_existing=True):
        return super().submit(request)

class Harness(LocalHarness):
    def make_client(self):
        return ForgetfulClient()
"""


def test_a_backend_of_ones_own_that_breaks_the_contract_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    (tmp_path / "test_mine.py").write_text(
        'from fray.testing.contract import TestNames\n\nFRAY_BACKENDS = ["forgetful:Harness"]\n'
    )
    done = pytest_in(tmp_path)
    assert "TestNames::test_a_live_job_keeps_its_name_from_others[forgetful:Harness] FAILED" in done.stdout, done.stdout
    assert "TestNames::test_a_live_job_is_adopted[forgetful:Harness] PASSED" in done.stdout
    assert "DID NOT RAISE" in done.stdout
    assert "2 failed" in done.stdout  # this one, and that many who submit one name at once get one job


def test_the_backend_that_the_documents_show_keeps_what_they_say(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "contributing" / "add-a-backend.md").read_text(encoding="utf-8")
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(code)
    done = pytest_in(tmp_path, "-k", "TestLifecycle or TestReplicas")
    assert done.returncode == 0, done.stdout
    assert "test_a_failed_program_is_retried_until_it_succeeds[pool:PoolHarness] PASSED" in done.stdout
