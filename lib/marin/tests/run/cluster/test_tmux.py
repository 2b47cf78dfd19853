"""`infra/marin-tmux.sh` in a real tmux."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.testing.waiting import eventually

SCRIPT = Path(__file__).parents[5] / "infra" / "marin-tmux.sh"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed: infra/marin-tmux.sh is not tested"),
]

CONDA = """#!/bin/sh
case "$1 $2" in
  "env list") echo "base  *  /opt/conda"; echo "marin     /opt/conda/envs/marin" ;;
  "shell.bash hook") echo 'conda() { echo "conda was asked to $*"; }' ;;
esac
"""


class Tmux:
    """A tmux server of its own, with a project whose `python` tells how it was called."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        (self.root / "infra").mkdir(parents=True)
        shutil.copy(SCRIPT, self.root / "infra")
        (self.root / "infra" / "marin-cluster.yaml").write_text("cluster_name: a\n")
        self._folder, self._socket = folder, str(folder / "socket")
        (folder / "bin").mkdir()
        self.program("python", '#!/bin/sh\necho "python was given: $*"\n')

    def program(self, name: str, text: str) -> None:
        (self._folder / "bin" / name).write_text(text)
        (self._folder / "bin" / name).chmod(0o755)

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        own = {"HOME": str(self._folder), "TERM": "xterm", "LANG": os.environ.get("LANG", "C.UTF-8")}
        environment = {**own, "PATH": f"{self._folder / 'bin'}:/usr/bin:/bin", "MARIN_TMUX_DETACHED": "1"}
        environment["MARIN_TMUX_ARGS"] = f"-f /dev/null -S {self._socket}"
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, cwd="/")

    def start(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run(str(self.root / "infra" / "marin-tmux.sh"), *words)

    def ask(self, *words: str) -> str:
        return self._run("tmux", "-S", self._socket, *words).stdout

    def await_text(self, pane: int, text: str) -> None:
        eventually(lambda: text in self.ask("capture-pane", "-p", "-J", "-t", f"marin:marin.{pane}"), text, 30)


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    server = Tmux(tmp_path)
    try:
        yield server
    finally:
        server.ask("kill-server")


def test_a_pane_with_the_dashboard_and_one_with_a_shell(tmux: Tmux) -> None:
    done = tmux.start()
    assert done.returncode == 0, done.stderr
    expected = "-m marin.run.cluster dashboard --port 8265 --cluster infra/marin-cluster.yaml"
    tmux.await_text(0, f"python was given: {expected}")
    tmux.ask("send-keys", "-t", "marin:marin.1", 'echo "at $PWD with $RAY_ADDRESS"', "Enter")
    tmux.await_text(1, f"at {tmux.root} with http://127.0.0.1:8265\n")
    # A second call finds the session that there is.
    assert tmux.start().returncode == 0
    assert tmux.ask("list-panes", "-a").count("\n") == 2


def test_the_conda_environment_is_activated_in_both_panes(tmux: Tmux) -> None:
    tmux.program("conda", CONDA)
    done = tmux.start("infra/other.yaml")
    assert done.returncode == 1
    assert done.stderr == "marin-tmux: no cluster file infra/other.yaml; files are: infra/marin-cluster.yaml\n"
    done = tmux.start()
    assert done.returncode == 0, done.stderr
    for pane in (0, 1):
        tmux.await_text(pane, "conda was asked to activate marin")
