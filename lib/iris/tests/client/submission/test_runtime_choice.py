import os
import sys
from pathlib import Path
from typing import Any

import pytest

from iris.client.submission.project import Project
from iris.client.submission.runtime_choice import (
    PythonEnvironment,
    Submitting,
    check_extras,
    choose_runtime,
    submitting_from,
)
from iris.domain.runtime import PackageSource, TaskRuntime
from rigging.errors import InvalidRequest

OWN = PythonEnvironment("/own", "3.11.4", "/own/python")
SHELL = PythonEnvironment("/shell", "3.12.1", "/shell/python")
HERE, ELSEWHERE = Submitting(OWN, SHELL, True), Submitting(OWN, SHELL, False)
ROOT = Path("/ws")


def project(packages: PackageSource = PackageSource.LOCK, **fields: Any) -> Project:
    return Project(ROOT, packages, **fields)


@pytest.mark.parametrize("packages", [PackageSource.LOCK, PackageSource.REQUIREMENTS])
def test_a_workspace_that_says_its_packages_is_believed(packages: PackageSource) -> None:
    assert choose_runtime(project(packages), HERE, is_callable=False) == (
        TaskRuntime(python="3.12", packages=packages, interpreter="/own/python"), "",
    )  # fmt: skip
    assert choose_runtime(project(packages), ELSEWHERE, is_callable=True) == (
        TaskRuntime(python="3.11", packages=packages), "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "python", "origin"),
    [
        ({}, "3.12", ""),
        ({"requires_python": ">= 3.12"}, "3.12", ""),
        ({"requires_python": ">=3.13, <4"}, ">=3.13,<4", "requires-python of /ws/pyproject.toml"),
        ({"python_version": "3.13", "requires_python": ">=3.11"}, "3.13", "/ws/.python-version"),
        ({"python_version": "3.12", "requires_python": ">=3.11"}, "3.12", ""),
    ],
)
def test_the_python_of_a_command_and_the_file_that_asks_for_another_than_the_submitters(
    fields: dict[str, str], python: str, origin: str
) -> None:
    for here in (HERE, ELSEWHERE):
        runtime, told = choose_runtime(project(**fields), here, is_callable=False)
        assert runtime.python == python
        assert told == (f"Python {python}, as {origin} requires: yours is 3.12.1" if origin else "")


def test_a_callable_runs_on_the_python_that_pickled_it() -> None:
    runtime, told = choose_runtime(project(python_version="3.13"), HERE, is_callable=True)
    assert (runtime.python, told) == ("3.11", "")
    with pytest.raises(
        InvalidRequest, match=r"comes from Python 3\.11\.4 and runs on 3\.11, .* requires Python >=3\.12:"
    ):
        choose_runtime(project(requires_python=">= 3.12"), HERE, is_callable=True)


def test_without_packages_the_local_cluster_uses_the_submitters_environment() -> None:
    runtime, told = choose_runtime(None, HERE, is_callable=False)
    assert runtime == TaskRuntime(
        python="3.12", packages=PackageSource.SUBMITTER, environment_path="/shell", interpreter="/shell/python"
    )
    assert told == "no workspace: using your environment /shell (local cluster only)"
    runtime, told = choose_runtime(project(PackageSource.NONE), HERE, is_callable=True)
    assert (runtime.environment_path, runtime.python) == ("/own", "3.11")
    assert told.startswith("no uv.lock, pyproject.toml or requirements.txt: using your environment /own")
    runtime, told = choose_runtime(project(PackageSource.NONE, python_version="3.13"), HERE, is_callable=False)
    assert runtime == TaskRuntime(python="3.13", packages=PackageSource.NONE, interpreter="/own/python")
    assert told == "without packages and with Python 3.13, as /ws/.python-version requires: yours is 3.12.1"


def test_elsewhere_a_workspace_must_say_its_packages_and_no_workspace_gets_a_bare_python() -> None:
    assert choose_runtime(None, ELSEWHERE, is_callable=False) == (
        TaskRuntime(python="3.12", packages=PackageSource.NONE), "",
    )  # fmt: skip
    with pytest.raises(InvalidRequest, match=r"the workspace /ws does not list the packages of its jobs.*/shell$"):
        choose_runtime(project(PackageSource.NONE), ELSEWHERE, is_callable=False)


def test_extras_are_those_of_the_project() -> None:
    check_extras([], None)
    check_extras(["Dev_Tools", "gpu"], project(extras=frozenset({"dev-tools", "gpu"})))
    check_extras(["anything"], project(extras=None))
    for found, words in (
        (None, "it has no workspace"),
        (project(PackageSource.REQUIREMENTS), "the workspace /ws has none"),
        (project(extras=frozenset()), "extra 'x' is not defined by /ws; its extras: none"),
        (project(extras=frozenset({"b", "a"})), "extra 'x' is not defined by /ws; its extras: a, b"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            check_extras(["x"], found)


def environment(place: Path, text: str) -> str:
    (place / "bin").mkdir(parents=True)
    (place / "bin/python").symlink_to(sys.executable)
    (place / "pyvenv.cfg").write_text(text)
    return str(place)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("version = 3.9.7\n", "3.9.7"), ("home = /x\nversion_info = 3.10.1.final.0\nversion = 1\n", "3.10.1"),
        ("version=3.8\n", "3.8"),
    ],
)  # fmt: skip
def test_the_shells_active_environment_is_the_shells(tmp_path: Path, text: str, version: str) -> None:
    place = environment(tmp_path / "venv", text)
    found = submitting_from({"VIRTUAL_ENV": place}, same_machine=True)
    assert found.shell == PythonEnvironment(place, version, os.path.realpath(sys.executable))
    assert found.own.prefix == sys.prefix
    assert found.own.version == ".".join(map(str, sys.version_info[:3]))
    assert found.same_machine


def test_without_a_usable_one_it_is_this_process(tmp_path: Path) -> None:
    broken = environment(tmp_path / "broken", "home = /x\n")
    gone = environment(tmp_path / "gone", "version = 3.9\n")
    (tmp_path / "gone/bin/python").unlink()
    for place in ("", "/nowhere", broken, gone):
        found = submitting_from({"VIRTUAL_ENV": place} if place else {}, same_machine=False)
        assert found.shell == found.own
        assert not found.same_machine
    assert submitting_from({"VIRTUAL_ENV": sys.prefix}, same_machine=False).shell.interpreter == found.own.interpreter
