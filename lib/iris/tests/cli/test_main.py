"""The frame of the command line: quick help, typos answered, errors in one sentence, exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from iris.cli import exit_codes
from iris.cli.context import CliContext
from iris.cli.exit_codes import exit_code_of
from iris.cli.main import LazyGroup, run
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

NOUNS = ["cluster", "completion", "doctor", "job", "process", "query", "task", "usage", "user", "worker"]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("IRIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))


def python(program: str, *words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *words], stderr=subprocess.PIPE, text=True, check=False, timeout=60, **options
    )


@pytest.mark.process
@pytest.mark.parametrize("words", [["--help"], ["job", "--help"], ["job", "run", "--help"], ["cluster", "--help"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    done = python(
        "import sys, json\nfrom iris.cli.main import run\n"
        f"code = run({words!r})\nprint(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)",
        stdout=subprocess.PIPE,
    )
    code, modules = json.loads(done.stderr)
    assert (code, done.stdout[:11]) == (0, "Usage: iris")
    assert not {"grpc", "google.protobuf", "iris.client", "asyncio", "yaml"} & set(modules)


def test_the_nouns_and_their_help(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-h"], ["--help"]):
        assert run(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines[lines.index("Commands:") + 1 :] if line.strip()] == NOUNS
    for noun in NOUNS:
        assert run([noun, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"Usage: iris {noun}")
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("iris, version ")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("jbo", "no command 'jbo'; did you mean 'job'?"),
        ("job lgos", "no command 'lgos'; did you mean 'logs'?"),
        (
            "job xyz",
            "bug-report, hold, kill, list, logs, release, requeue, run, status, stop, summary, update, wait",
        ),
        ("job run python x.py", "put -- before the command"),
        ("job run --", "no command after --"),
        ("job run --memmory 1GB -- true", "--memory"),
        ("job run stray -- true", "stray"),
        ("job run -e NOT_SET_ANYWHERE -- true", "NOT_SET_ANYWHERE is not set"),
        ("job run --tpu v4-8 --gpu 1 -- true", "--tpu and --gpu"),
        ("job run --priority urgent -- true", "production"),
        ("job run --scheduling-timeout 1e18 -- true", "is not in the range 0<x<="),
        ("job run --timeout -1 -- true", "is not in the range 0<x<="),
        ("job run --cpu nan -- true", "'nan' is not a number"),
        ("job run --job-name '' -- true", "--job-name': it is empty"),
        ("job run --user '' -- true", "--user': it is empty"),
        ("job run --tpu '' -- true", "--tpu ''"),
        ("job run --gpu '' -- true", "--gpu ''"),
        ("job run --tpu '' --gpu 1 -- true", "--tpu and --gpu"),
        ("job run --zone '' -- true", "--zone': it is empty"),
        ("--controller-url '' job stop train", "--controller-url': it is empty"),
        ("--cluster '' job list", "--cluster': it is empty"),
        ("--config '' job list", "--config': it is empty"),
        ("job list --user ''", "--user': it is empty"),
        ("job list -n 10001", "is not in the range 1<=x<=10000"),
        ("job logs x --since-seconds -5", "is not in the range 0<=x<="),
        ("job logs x --max-lines 99999999999999", "is not in the range 1<=x<="),
        ("user budget set '' --max-weight 1", "it is empty"),
        ("user budget set ann --max-weight nan", "'nan' is not a number"),
        ("cluster controller serve --state-dir ''", "--state-dir': it is empty"),
        ("cluster controller restore --at inf", "--at 'inf'"),
        ("cluster start --local --idle-timeout nan", "'nan' is not a number"),
        ("cluster start", "iris cluster start --local"),
        ("job logs", "JOB|TASK"),
        ("job run --memory lots -- true", "memory 'lots' is not a size"),
        ("job run --memory 2 -- true", "memory '2' is 2 bytes, below the minimum of 1MB; write a unit"),
        ("job run --memory 99999999999999999999GB -- true", "is not a size: it must be below 8192p"),
        ("job run --disk 7 -- true", "disk '7' is 7 bytes, below the minimum of 1MB"),
        ("job run --gpu H100x99999999999 -- true", "the number of gpus of a task must be a whole"),
        ("job run --tpu v5p-9 -- true", "v5p-8"),
    ],
)
def test_a_usage_error_helps(words: str, named: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run([word.strip("'") for word in words.split()]) == 2
    said = capsys.readouterr().err
    assert ("Error: " in said, "Traceback" in said) == (True, False)
    assert named in said
    assert not (tmp_path / "state").exists(), "a usage error starts nothing"


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        ("--cluster nowhere job list", 4, "no cluster named 'nowhere'"),
        ("--controller-url nonsense job list", 3, "must be host:port"),
        ("--controller-url h:1 --cluster local job list", 3, "both name a cluster"),
        ("--controller-url 127.0.0.1:1 job list", 5, "at 127.0.0.1:1 cannot be reached: connection refused"),
        ("cluster controller serve --state-dir /proc/x", 3, "cannot keep the state in /proc/x (--state-dir)"),
        ("job run --job-name a/b -- true", 3, "a/b"),
        ("cluster status", 5, "no local cluster runs"),
        ("cluster stop", 0, "no local cluster runs"),
    ],
)
def test_an_error_is_one_sentence_and_a_code(
    words: str, code: int, named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("IRIS_RECONNECT_TIMEOUT", "0.05")
    monkeypatch.chdir(tmp_path)
    assert run(words.split()) == code
    said = capsys.readouterr().err
    assert (said.startswith("iris: "), "Traceback" in said) == (True, False)
    assert named in said
    assert not (tmp_path / "state").exists(), "what is refused here starts nothing"


def ending(error: BaseException | int | None) -> click.Command:
    """A program that ends so."""

    class Program(click.Command):
        def main(self, **options: Any) -> object:
            options["obj"].verbose = "-v" in options["args"]
            if isinstance(error, BaseException):
                raise error
            return error

    return Program("program")


def handed_on() -> RuntimeError:
    """Ctrl-C as Python 3.11 hands on one that arrives while a class is made."""
    error = RuntimeError("Error calling __set_name__ on 'Field' instance")
    error.__cause__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (0, 0, ""),
        (37, 37, ""),
        (click.Abort(), 130, "iris: interrupted\n"),
        (KeyboardInterrupt(), 130, "iris: interrupted\n"),
        (handed_on(), 130, "iris: interrupted\n"),
        (NotFound("no job x"), 4, "iris: no job x\n"),
        (MarinError("odd"), 1, "iris: odd\n"),
        (OSError(13, "Permission denied", "/x"), 1, "iris: /x: Permission denied\n"),
        (OSError(13, "Permission denied"), 1, "iris: Permission denied\n"),
        (OSError("odd"), 1, "iris: odd\n"),
        (ValueError("odd"), 1, "iris: internal error: ValueError: odd (run `iris -v ...` for the traceback)\n"),
        (SystemExit(0), 0, ""),
        (click.UsageError("do it otherwise"), 2, "Error: do it otherwise\n"),
    ],
)
def test_each_end_of_a_command_has_its_sentence_and_code(
    error: BaseException | int | None, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([], program=ending(error)) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", said)


@pytest.mark.parametrize("error", [NotFound("no job x"), ValueError("odd"), OSError(13, "Permission denied", "/x")])
def test_the_whole_story_is_told_when_it_is_asked_for(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    run(["-v"], program=ending(error))
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert run(["--traceback", "--controller-url", "nonsense", "job", "list"]) == 3
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound, 4), (Unavailable, 5), (InvalidRequest, 3), (AlreadyExists, 3), (Conflict, 3), (Denied, 3),
        (BudgetExceeded, 3), (MarinError, 1), (JobFailed, 1), (StepFailed, 1), (LeaseLost, 1),
    ],
)  # fmt: skip
def test_the_documented_codes(error: type[MarinError], code: int) -> None:
    assert exit_code_of(error("x")) == code


def test_the_global_options_reach_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[object, ...]] = []

    @click.command("see")
    @click.pass_obj
    def see(context: CliContext) -> None:
        seen.append((context.cluster, context.config, context.controller_url, context.verbose))

    monkeypatch.setattr(LazyGroup, "get_command", lambda group, ctx, name: see if name == "see" else None)
    assert run(["see"]) == 0
    assert run(["--cluster", "c", "--config", "f", "--controller-url", "h:1", "-v", "see"]) == 0
    assert seen == [(None, None, None, False), ("c", "f", "h:1", True)]


INTERRUPTED_AT_IMPORT = """
import os, signal, sys
from iris.cli import entry

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupter())
entry.main()
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "module",
    [
        # Before the command line is there, while it is, and within a command.
        *("iris.cli.main", "click.core", "iris.cli.context"),
        *(
            "iris.cli.job.commands",
            "iris.domain.resources",
            "grpc",
            "iris.rpc.generated.iris_pb2",
            "iris.client.client",
        ),
    ],
)
def test_ctrl_c_while_a_module_is_imported_shows_no_traceback(module: str) -> None:
    # From where Python itself is ready: what it does before is beyond anybody's reach.
    done = python(INTERRUPTED_AT_IMPORT, module, "--cluster", "nowhere", "job", "list")
    assert "Traceback" not in done.stderr
    assert done.returncode in (-signal.SIGINT, 130), done.stderr


@pytest.mark.process
def test_a_shell_that_ignores_ctrl_c_has_it_ignored() -> None:
    program = "import signal; from iris.cli import entry; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    ignoring = "import os, signal, sys; signal.signal(2, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    assert python(ignoring, sys.executable, "-c", program, stdout=subprocess.PIPE).stdout == "True\n"


@pytest.mark.process
def test_a_reader_that_went_away_is_no_error_and_a_full_disk_is_told_once() -> None:
    program = "import sys\nfrom iris.cli.main import run\nsys.exit(run(['--help']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = python(program, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (exit_codes.BROKEN_PIPE, "")
    with open("/dev/full", "w") as full:
        done = python(program, stdout=full)
    assert (done.returncode, done.stderr) == (exit_codes.FAILURE, "iris: No space left on device\n")


@pytest.mark.process
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error(closed: str) -> None:
    program = "import sys; from iris.cli.entry import main; sys.argv = ['iris', '--version']; main()"
    done = subprocess.run(["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, program], timeout=60, check=False)
    assert done.returncode == 0


def test_a_removed_current_directory_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run(["job", "run", "--", "true"]) == 3
    assert "the current directory has been removed: change to another" in capsys.readouterr().err
