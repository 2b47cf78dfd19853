import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from marin.cli.main import COMMANDS
from support.marin.recorded_runs import Done, RecordedStorage

Marin = Callable[..., Done]


@pytest.fixture
def complete(marin: Marin, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Complete the last word of a line, as bash would have it done."""

    def call(line: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setenv("_MARIN_COMPLETE", "bash_complete")
            patch.setenv("COMP_WORDS", line)
            patch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
            done = marin()
        assert done.code == 0, done.err
        return [word.partition(",")[2] for word in done.out.splitlines() if word]

    return call


def test_names_of_runs_and_steps_are_completed(
    storage: RecordedStorage, complete: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("raw/deep/a-000001", "raw/b-000002", "pinned", "tmp/no-000003"):
        storage.step(name)
    run = storage.run("train-0a1b2c", [], [])
    other = RecordedStorage(storage.root / "other")
    other.run("eval-0a1b2c", [])
    for line, found in (
        ("ru", ["runs"]),
        ("locks cl", ["clear"]),
        ("graph tr", ["train-0a1b2c", run]),
        ("logs ra", ["raw/b-000002", "raw/deep/a-000001"]),
        ("logs raw/deep/", ["raw/deep/a-000001"]),
        ("logs pi", ["pinned"]),
        ("show t", ["train-0a1b2c", run]),
        ("logs --fo", ["--follow"]),
        (f"show --prefix {other.root} ev", ["eval-0a1b2c"]),
    ):
        assert complete(f"marin {line}") == found, line
    monkeypatch.setenv("MARIN_PREFIX", "no-such-protocol://bucket")
    assert complete("marin show x") == [], "storage that cannot be read disturbs nobody"


def test_a_shell_gets_its_setup_and_every_command_has_help_and_json(marin: Marin) -> None:
    for shell in ("zsh", "fish"):
        done = marin("completion", shell)
        assert (done.code, "_MARIN_COMPLETE" in done.out) == (0, True)
    assert marin("completion", "tcsh").code == 2
    for name in COMMANDS:
        for words in [["locks", "list"], ["locks", "clear"]] if name == "locks" else [[name]]:
            done = marin(*words, "--help")
            assert done.code == 0
            assert ("--json" in done.out) == (name not in ("attest", "completion", "browser", "init", "plot")), words


@pytest.mark.process
def test_help_imports_neither_storage_nor_the_executor() -> None:
    program = (
        "import sys; from marin.cli.main import run; code = run(['--help']);"
        "heavy = {'marin.execution', 'fsspec', 'fray', 'iris', 'gcsfs', 's3fs'} & set(sys.modules);"
        "sys.exit(code or (f'{heavy}' if heavy else 0))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
@pytest.mark.parametrize(("no_color", "painted"), [("", True), ("1", False)])
def test_on_a_terminal_colours_follow_no_color(no_color: str, painted: bool, storage: RecordedStorage) -> None:
    storage.run("x-aaaaaa", [storage.step("a-000001")])
    storage.run("x-bbbbbb", [storage.step("b-000001")])
    master, terminal = os.openpty()
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm"}
    words = [sys.executable, "-m", "marin.cli", "diff", "x-a", "x-b"]
    subprocess.run(words, stdout=terminal, stderr=terminal, env=environment, check=True)
    os.close(terminal)
    shown = os.read(master, 65536)
    os.close(master)
    assert (b"\x1b[" in shown) == painted
    assert b"+ b" in shown
