"""What the shell completes, asked as bash asks."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from iris.cli.main import run
from iris.cluster.types import JobState
from rigging.errors import Unavailable
from support.iris.cli import Client, Context, job


class Chosen(Context):
    """The cluster of the test, which may not run."""

    is_running = True
    error: Exception | None = None

    def target(self, on_warning: Callable[[str], None] = print) -> Any:
        if self.error is not None:
            raise self.error
        return SimpleNamespace()

    def running(self, target: Any) -> Any:
        return target if self.is_running else None


@pytest.fixture
def chosen() -> Chosen:
    client = Client(job("/ann/train"), job("/ann/train/eval"), job("/ann/test", JobState.FAILED), job("/bob/train"))
    client.cluster = SimpleNamespace(workers=[SimpleNamespace(worker_id=name) for name in ("w1", "w2", "v1")])
    return Chosen(client)


Complete = Callable[[str], list[str]]


@pytest.fixture
def complete(chosen: Chosen, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """Complete the last word of a line."""

    def call(line: str) -> list[str]:
        monkeypatch.setenv("_IRIS_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", f"iris {line}")
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" "))))
        assert run([], chosen) == 0
        written = capsys.readouterr()
        assert written.err == ""
        return [word.partition(",")[2] for word in written.out.splitlines() if word]

    return call


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("clus", ["cluster"]),
        ("job run --cpu-", ["--cpu-quota"]),
        ("job logs t", ["test", "train", "train/eval"]),
        ("job logs /bob/", ["/bob/train"]),
        ("job stop t", ["train", "train/eval"]),
        ("job wait train ", ["train", "train/eval"]),
        ("cluster worker drain w", ["w1", "w2"]),
        ("cluster worker describe v", ["v1"]),
        ("job run --host w1 --not-host w", ["w1", "w2"]),
        ("--cluster lo", ["local"]),
    ],
)
def test_commands_options_and_names_are_completed(line: str, found: list[str], complete: Complete) -> None:
    assert complete(line) == found


def test_the_chosen_cluster_is_asked_and_one_that_cannot_be_disturbs_nobody(chosen: Chosen, complete: Complete) -> None:
    complete("--controller-url h:1 --insecure job stop x")
    assert (chosen.controller_url, chosen.insecure) == ("h:1", True)
    chosen.is_running = False
    assert complete("job stop t") == []
    chosen.error = Unavailable("it does not answer")
    assert complete("job stop t") == []


def test_each_shell_gets_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("zsh", "fish"):
        assert run(["completion", shell]) == 0
        assert "_IRIS_COMPLETE" in capsys.readouterr().out
