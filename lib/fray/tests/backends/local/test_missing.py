import logging
from pathlib import Path

import pytest

from fray.backends.local import LocalClient
from fray.backends.local.missing import missing_packages, unmet_requirements
from fray.testing import LONG
from fray.types import Entrypoint, EnvironmentConfig, JobRequest

PROJECT = """
[project]
name = "mine"
version = "1"

[project.optional-dependencies]
here = ["pytest>=8"]
half = ["mine[here]", "no-such-package>=1"]
"""


@pytest.mark.parametrize(
    ("requirement", "is_met"),
    [
        ("pytest", True),
        ("PyTest>=8,<1000", True),
        ("pytest<8", False),
        ("no-such-package", False),
        ("no-such-package; sys_platform == 'plan9'", True),
        ("../a/folder", False),
        ("--no-deps", False),
    ],
)
def test_a_requirement_is_met_by_what_is_installed(requirement: str, is_met: bool) -> None:
    assert unmet_requirements([requirement]) == ([] if is_met else [requirement])


def test_extras_are_missing_as_far_as_their_packages_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    extras = ["here", "half", "none"]
    environment = EnvironmentConfig(workspace=str(tmp_path), pip_packages=["pytest", "absent"], extras=extras)
    half = "extra half (no-such-package>=1)"
    assert missing_packages(environment) == ["absent", half, "extra none, which no pyproject.toml here has"]
    with caplog.at_level(logging.WARNING), LocalClient() as client:
        for extra in ("here", "half"):
            environment = EnvironmentConfig(workspace=str(tmp_path), extras=[extra])
            client.submit(JobRequest("job", Entrypoint.from_callable(print), environment=environment)).wait(LONG)
    assert [record.getMessage().rpartition("nothing: ")[2] for record in caplog.records] == [half]
