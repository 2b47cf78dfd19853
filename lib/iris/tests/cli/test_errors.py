"""What becomes of an error that ends a command: one sentence, and an exit code."""

import os
import subprocess
import sys
from typing import Any

import click
import pytest

from iris.cli import exit_codes
from iris.cli.exit_codes import exit_code_of
from iris.cli.main import LazyGroup, cli, run
from rigging.errors import (
    AlreadyExists,
    BudgetExceeded,
    Conflict,
    Denied,
    InvalidRequest,
    JobFailed,
    LeaseLost,
    MarinError,
    NotFound,
    StepFailed,
    Unavailable,
)


def ending(error: BaseException | int | None) -> click.Command:
    """A program that ends so."""

    class Program(click.Command):
        def main(self, **options: Any) -> object:
            options["obj"].verbose = "-v" in options["args"]
            if isinstance(error, BaseException):
                raise error
            return error

    return Program("program")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (0, 0, ""),
        (37, 37, ""),
        (click.Abort(), 130, "iris: interrupted\n"),
        (KeyboardInterrupt(), 130, "iris: interrupted\n"),
        (NotFound("no job x"), 4, "iris: no job x\n"),
        (MarinError("odd"), 1, "iris: odd\n"),
        (OSError(13, "Permission denied", "/x"), 1, "iris: /x: Permission denied\n"),
        (OSError(13, "Permission denied"), 1, "iris: Permission denied\n"),
        (OSError("odd"), 1, "iris: odd\n"),
        (
            ValueError("odd"),
            1,
            "iris: internal error: ValueError: odd (run `iris -v ...` for the traceback)\n",
        ),
        (click.UsageError("do it otherwise"), 2, "Error: do it otherwise\n"),
    ],
)
def test_one_sentence_and_a_code(
    error: BaseException | int | None, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([], program=ending(error)) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", said)


@pytest.mark.parametrize("error", [NotFound("no job x"), ValueError("odd")])
def test_the_whole_story_is_told_when_it_is_asked_for(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    run(["-v"], program=ending(error))
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    with pytest.raises(PermissionError):
        run(["-v"], program=ending(OSError(13, "Permission denied", "/x")))


def test_a_reader_that_went_away_is_no_error() -> None:
    program = "import sys\nfrom iris.cli.main import run\nsys.exit(run(['--help']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (exit_codes.BROKEN_PIPE, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told_once_and_is_a_failure() -> None:
    program = "import sys\nfrom iris.cli.main import run\nsys.exit(run(['--help']))"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (exit_codes.FAILURE, "iris: No space left on device\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound, 4), (Unavailable, 5), (InvalidRequest, 3), (AlreadyExists, 3), (Conflict, 3), (Denied, 3),
        (BudgetExceeded, 3), (MarinError, 1), (JobFailed, 1), (StepFailed, 1), (LeaseLost, 1),
    ],
)  # fmt: skip
def test_the_documented_codes(error: type[MarinError], code: int) -> None:
    assert exit_code_of(error("x")) == code


def test_the_nouns_and_their_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(cli, LazyGroup)
    context = click.Context(cli)
    assert cli.list_commands(context) == ["cluster", "job", "query", "task", "user", "worker"]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
    assert cli.get_command(context, "nothing") is None
    for words in (["-h"], ["--help"]):
        assert run(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines[lines.index("Commands:") + 1 :] if line.strip()] == [
            "cluster", "job", "query", "task", "user", "worker",
        ]  # fmt: skip
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("iris, version ")


def test_the_global_options_reach_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, ...]] = []

    @click.command("see")
    @click.pass_obj
    def see(context: object) -> None:
        seen.append((context.cluster, context.config, context.controller_url, context.verbose))

    monkeypatch.setattr(LazyGroup, "get_command", lambda group, ctx, name: see if name == "see" else None)
    assert run(["see"]) == 0
    assert run(["--cluster", "c", "--config", "f", "--controller-url", "h:1", "-v", "see"]) == 0
    assert seen == [(None, None, None, False), ("c", "f", "h:1", True)]
