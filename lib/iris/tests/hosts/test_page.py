"""The commands of docs/clusters.md put a cluster of several hosts together, as they are written there."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.iris.host_cluster import until
from support.iris.hosts import Host

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[4] / "docs" / "clusters.md"


def blocks(place: Path) -> list[str]:
    """The shell commands of the part about several hosts, with directories of this test in place of the page's."""
    part = PAGE.read_text().partition("## Several hosts, by hand")[2].partition("### Who is let in")[0]
    found = re.findall(r"```bash\n(.*?)```", part, re.S)
    return [text.replace("/var/lib/", f"{place}/") for text in found]


@pytest.mark.timeout(180)
def test_the_commands_of_the_page_make_a_cluster(
    make_hosts: Callable[..., dict[str, Host]], page_environment: dict[str, str], tmp_path: Path
) -> None:
    serve, token, start, user, *more = blocks(tmp_path)
    assert not more
    env, hosts = page_environment, make_hosts("ctl", "host1", "host2")

    def run(text: str) -> "subprocess.CompletedProcess[str]":
        return hosts["ctl"].run(["sh", "-ec", text], env=env, cwd=tmp_path, timeout=120)

    controller = hosts["ctl"].start(["sh", "-ec", serve], tmp_path / "ctl.log", env, tmp_path)
    until((tmp_path / "iris" / "user-token").exists, "the controller has written its token")
    made = run(token)
    assert made.returncode == 0, made.stderr
    for name in ("host1", "host2"):
        text = start.replace("host1", name).replace("/iris-worker", f"/iris-worker-{name}")
        hosts[name].start(["sh", "-ec", text], tmp_path / f"{name}.log", env, tmp_path)
    admin = "IRIS_TOKEN_FILE=iris/user-token iris --controller-url 10.0.0.1:7077 cluster status"
    until(lambda: run(admin).stdout.count("connected") == 2, "both hosts are connected")
    env["IRIS_TOKEN_FILE"] = str(tmp_path / "iris" / "user-token")  # as in the page's second block
    done = run(user)
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stderr
    assert re.search(r"host1 +connected .* 10\.0\.0\.2 ", done.stdout)
    assert (tmp_path / "ann.token").stat().st_mode & 0o777 == 0o600
    assert controller.poll() is None
