"""Completion of names in a shell, and help that stays quick."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from marin.cli.groups import COMMANDS
from marin.testing.recorded_runs import Done, RecordedStorage

Marin = Callable[..., Done]


@pytest.fixture
def complete(marin: Marin, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Complete the last word of a line, as bash would have it done."""

    def call(line: str) -> list[str]:
        monkeypatch.setenv("_MARIN_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        done = marin()
        assert done.code == 0, done.err
        return [word.partition(",")[2] for word in done.out.splitlines() if word]

    return call


def test_names_of_runs_and_steps_are_completed(storage: RecordedStorage, complete: Callable[[str], list[str]]) -> None:
    storage.step("raw/deep/a-000001")
    storage.step("raw/b-000002")
    storage.step("pinned")
    storage.step("tmp/no-000003")
    run = storage.run("train-0a1b2c", [], [])
    assert complete("marin ru") == ["runs"]
    assert complete("marin locks cl") == ["clear"]
    assert complete("marin graph tr") == ["train-0a1b2c", run]
    assert complete("marin logs ra") == ["raw/b-000002", "raw/deep/a-000001"]
    assert complete("marin logs raw/deep/") == ["raw/deep/a-000001"]
    assert complete("marin logs pi") == ["pinned"]
    assert complete("marin show t") == ["train-0a1b2c", run]
    assert complete("marin logs --fo") == ["--follow"]


def test_another_prefix_on_the_line_is_looked_into(
    storage: RecordedStorage, complete: Callable[[str], list[str]]
) -> None:
    other = RecordedStorage(storage.root / "other")
    other.run("eval-0a1b2c", [])
    assert complete(f"marin show --prefix {other.root} ev") == ["eval-0a1b2c"]


def test_storage_that_cannot_be_read_disturbs_nobody(
    complete: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "no-such-protocol://bucket")
    assert complete("marin show x") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_shell_gets_its_setup(shell: str, marin: Marin) -> None:
    done = marin("completion", shell)
    assert done.code == 0
    assert "_MARIN_COMPLETE" in done.out
    assert marin("completion", "tcsh").code == 2


def test_every_command_has_help_and_json(marin: Marin) -> None:
    for name in COMMANDS:
        verbs = ["list", "clear"] if name == "locks" else [None]
        for verb in verbs:
            words = [name, *([verb] if verb else []), "--help"]
            done = marin(*words)
            assert done.code == 0
            assert ("--json" in done.out) == (name not in ("completion", "browser")), words


def test_help_imports_neither_storage_nor_the_executor() -> None:
    program = (
        "import sys; from marin.cli.main import run; code = run(['--help']);"
        "heavy = {'marin.execution', 'fsspec', 'fray', 'iris', 'gcsfs', 's3fs'} & set(sys.modules);"
        "sys.exit(code or (f'{heavy}' if heavy else 0))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_off_a_terminal_there_are_no_colours(
    variables: dict[str, str], storage: RecordedStorage, marin: Marin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    storage.run("train-0a1b2c", [storage.step("a-000001")])
    assert marin("graph", "train").out == "a  -\n"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
@pytest.mark.parametrize(("no_color", "painted"), [("", True), ("1", False)])
def test_on_a_terminal_colours_follow_no_color(no_color: str, painted: bool, storage: RecordedStorage) -> None:
    a, b = storage.step("a-000001"), storage.step("b-000001")
    storage.run("x-aaaaaa", [a])
    storage.run("x-bbbbbb", [b])
    master, terminal = os.openpty()
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm"}
    words = [sys.executable, "-m", "marin.cli", "diff", "x-a", "x-b"]
    subprocess.run(words, stdout=terminal, stderr=terminal, env=environment, check=True)
    os.close(terminal)
    shown = os.read(master, 65536)
    os.close(master)
    assert (b"\x1b[" in shown) == painted
    assert b"+ b" in shown
