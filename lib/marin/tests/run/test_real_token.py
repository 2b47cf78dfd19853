"""`ray_run` against a real Ray cluster with token authentication."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.ray_harness import need_namespaces

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.e2e, pytest.mark.timeout(400)]

TOKEN = "0123456789abcdef" * 4
# In a process of its own: what Ray is told of tokens holds for the whole process.
SERVE = f"""
import sys
from fray.testing.ray_jobs import jobs_cluster
with jobs_cluster(cpus=2, token={TOKEN!r}) as cluster:
    print(cluster.jobs_address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The Jobs API of a cluster that wants TOKEN."""
    need_namespaces()
    with subprocess.Popen(
        [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://")
        yield url
        process.stdin.close()


def ray_run(address: str, home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "RAY_"))}
    (home / "project").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "marin.run.ray_run", *words, "--", "echo", "let in"],
        cwd=home / "project",
        env={**kept, "RAY_ADDRESS": address, "HOME": str(home), **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_token_of_the_users_file_opens_the_cluster(address: str, tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(f"{TOKEN}\n")
    done = ray_run(address, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "let in" in done.stdout
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.parametrize(("env", "said"), [({}, "it wants a token"), ({"RAY_AUTH_TOKEN": "f" * 64}, "is not the")])
def test_without_it_the_cluster_stays_shut(address: str, tmp_path: Path, env: dict[str, str], said: str) -> None:
    done = ray_run(address, tmp_path, **env)
    assert done.returncode == 3
    assert said in done.stderr
