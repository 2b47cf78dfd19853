"""The frame of the command line: quick help, typos answered, errors in one sentence, exit codes."""

import errno
import json
import os
import signal
import subprocess
import sys

import click
import pytest

from iris.cli.context import CliContext
from iris.cli.exit_codes import exit_code_of
from iris.cli.main import run
from iris.cli.output import duration, moment, table
from iris.domain.job_spec import CommandEntrypoint
from rigging.errors import AlreadyExists, Conflict, Denied, InvalidRequest, JobFailed, NotFound, Unavailable


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("IRIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))


@pytest.mark.parametrize("words", [["--help"], ["job", "--help"], ["job", "run", "--help"], ["cluster", "--help"]])
def test_help_loads_nothing_heavy(words):
    program = (
        "import sys, json\nfrom iris.cli.main import run\n"
        f"code = run({words!r})\nprint(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stderr)
    assert code == 0
    assert done.stdout.startswith("Usage: iris")
    assert not {"grpc", "google.protobuf", "iris.client", "asyncio", "yaml"} & set(modules)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["jbo"], "no command 'jbo'; did you mean 'job'?"),
        (["job", "lgos"], "no command 'lgos'; did you mean 'logs'?"),
        (["job", "xyz"], "there are: bug-report, kill, list, logs, run, stop, summary, wait"),
        (["job", "run", "python", "x.py"], "put -- before the command"),
        (["job", "run", "--"], "no command after --"),
        (["job", "run", "--memmory", "1GB", "--", "true"], "--memory"),
        (["job", "run", "stray", "--", "true"], "stray"),
        (["job", "run", "-e", "NOT_SET_ANYWHERE", "--", "true"], "NOT_SET_ANYWHERE is not set"),
        (["job", "run", "--tpu", "v4-8", "--gpu", "1", "--", "true"], "--tpu and --gpu"),
        (["job", "run", "--priority", "urgent", "--", "true"], "production"),
        (["job", "run", "--scheduling-timeout", "1e18", "--", "true"], "is not in the range 0<x<="),
        (["job", "run", "--scheduling-timeout", "nan", "--", "true"], "'nan' is not a number"),
        (["job", "run", "--timeout", "-1", "--", "true"], "is not in the range 0<x<="),
        (["job", "run", "--cpu", "nan", "--", "true"], "'nan' is not a number"),
        (["job", "run", "--job-name", "", "--", "true"], "--job-name': it is empty"),
        (["job", "run", "--user", " ", "--", "true"], "--user': it is empty"),
        (["job", "run", "--tpu", "", "--", "true"], "--tpu ''"),
        (["job", "run", "--gpu", "", "--", "true"], "--gpu ''"),
        (["job", "run", "--tpu", "", "--gpu", "1", "--", "true"], "--tpu and --gpu"),
        (["job", "run", "--zone", "", "--", "true"], "--zone': it is empty"),
        (["--controller-url", "", "job", "stop", "train"], "--controller-url': it is empty"),
        (["--cluster", "", "job", "list"], "--cluster': it is empty"),
        (["--config", "", "job", "list"], "--config': it is empty"),
        (["job", "list", "--user", ""], "--user': it is empty"),
        (["job", "list", "-n", "99999999999999"], "is not in the range 1<=x<=10000"),
        (["job", "logs", "x", "--since-seconds", "nan"], "'nan' is not a number"),
        (["job", "logs", "x", "--since-seconds", "-5"], "is not in the range 0<=x<="),
        (["job", "logs", "x", "--since-seconds", "inf"], "is not in the range 0<=x<="),
        (["job", "logs", "x", "--max-lines", "99999999999999"], "is not in the range 1<=x<="),
        (["user", "budget", "set", "", "--max-weight", "1"], "it is empty"),
        (["cluster", "controller", "serve", "--state-dir", ""], "--state-dir': it is empty"),
        (["cluster", "controller", "serve", "--state-dir", "/etc/passwd"], "is a file"),
        (["cluster", "controller", "restore", "--at", "inf"], "--at 'inf'"),
        (["cluster", "start", "--local", "--idle-timeout", "nan"], "'nan' is not a number"),
        (["user", "budget", "set", "ann", "--max-weight", "nan"], "'nan' is not a number"),
        (["cluster", "start"], "iris cluster start --local"),
        (["job", "logs"], "JOB|TASK"),
    ],
)
def test_a_usage_error_says_what_to_write(words, named, capsys, tmp_path):
    assert run(words) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "state").exists(), "a usage error starts nothing"


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["--cluster", "nowhere", "job", "list"], 4, "no cluster named 'nowhere'"),
        (["--controller-url", "nonsense", "job", "list"], 3, "must be host:port"),
        (["--controller-url", "h:1", "--cluster", "local", "job", "list"], 3, "both name a cluster"),
        (["job", "run", "--memory", "lots", "--", "true"], 2, "memory 'lots' is not a size"),
        (
            ["job", "run", "--memory", "2", "--", "true"],
            2,
            "memory '2' is 2 bytes, below the least of 1MB; write a unit",
        ),
        (
            ["job", "run", "--memory", "99999999999999999999GB", "--", "true"],
            2,
            "is not a size: it must be below 8192p",
        ),
        (["job", "run", "--gpu", "H100x99999999999", "--", "true"], 2, "the number of gpus of a task must be a whole"),
        (["job", "run", "--disk", "7", "--", "true"], 2, "disk '7' is 7 bytes, below the least of 1MB"),
        (
            ["cluster", "controller", "serve", "--state-dir", "/proc/x"],
            3,
            "cannot keep the state in /proc/x (--state-dir)",
        ),
        (["job", "run", "--tpu", "v5p-9", "--", "true"], 2, "v5p-8"),
        (["job", "run", "--job-name", "a/b", "--", "true"], 3, "a/b"),
        (["cluster", "status"], 5, "no local cluster runs"),
        (["cluster", "stop"], 0, "no local cluster runs"),
    ],
)
def test_an_error_is_one_sentence_and_a_code(words, code, named, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run(words) == code
    err = capsys.readouterr().err
    assert named in err
    assert err.startswith("Usage: " if code == 2 else "iris: ")
    assert "Traceback" not in err
    assert not (tmp_path / "state").exists(), "what is refused here starts nothing"


def test_what_the_system_refuses_is_told_with_the_place(capsys):
    @click.command()
    def refuse():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/etc/hidden")

    assert run([], program=refuse) == 1
    assert capsys.readouterr().err == "iris: /etc/hidden: Permission denied\n"


def test_ctrl_c_while_a_command_is_imported_is_no_internal_error(capsys):
    @click.command()
    def interrupt():
        # As Python 3.11 hands on one that arrives while a class is made.
        raise RuntimeError("Error calling __set_name__ on 'Field' instance") from KeyboardInterrupt()

    assert run([], program=interrupt) == 130
    assert capsys.readouterr().err == "iris: interrupted\n"


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


@pytest.mark.parametrize(
    "module",
    [
        # Before the command line is there, while it is, and within a command.
        *("iris.cli.main", "click.core", "iris.cli.context"),
        *("iris.cli.job.commands", "iris.domain.resources", "grpc", "iris.rpc.iris_pb2", "iris.client.client"),
    ],
)
def test_ctrl_c_while_a_module_is_imported_shows_no_traceback(module):
    # From where Python itself is ready: what it does before is beyond anybody's reach.
    command = [sys.executable, "-c", INTERRUPTED_AT_IMPORT, module, "--cluster", "nowhere", "job", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (-signal.SIGINT, 130), done.stderr


def test_a_shell_that_ignores_ctrl_c_has_it_ignored():
    program = "import signal; from iris.cli import entry; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-c", ignoring, sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_controller_that_cannot_be_reached_has_a_code_of_its_own(capsys, monkeypatch):
    monkeypatch.setenv("IRIS_RECONNECT_TIMEOUT", "0.05")
    assert run(["--controller-url", "127.0.0.1:1", "job", "list"]) == 5
    assert "the controller at 127.0.0.1:1 cannot be reached: connection refused" in capsys.readouterr().err


def test_verbose_shows_the_traceback(capsys):
    assert run(["-v", "--controller-url", "nonsense", "job", "list"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_status_of_nothing_is_json_too(capsys, tmp_path):
    assert run(["cluster", "status", "--json"]) == 5
    assert json.loads(capsys.readouterr().out) == {"running": False, "state_dir": str(tmp_path / "state")}


def test_the_documented_codes():
    codes = {error: exit_code_of(error("x")) for error in (InvalidRequest, AlreadyExists, Conflict, Denied)}
    assert set(codes.values()) == {3}
    assert [exit_code_of(error("x")) for error in (NotFound, Unavailable, JobFailed)] == [4, 5, 1]


def test_tables_align_and_carry_no_trailing_spaces():
    assert table(("job", "state"), [["a", "x"], ["long", ""]]) == ["JOB   STATE", "a     x", "long"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.04, "0.0 s"), (59.96, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_old_moments_have_a_date():
    assert moment(0, 5) == "-"
    assert len(moment(1_000_000_000_000, 1_000_000_000_001)) == len("12:00:00")
    assert moment(1_000_000_000_000, 1_100_000_000_000).startswith("2001-09-")


def test_a_local_cluster_of_another_release_can_be_ended(capsys):
    from iris.local.start import LocalCluster

    class OtherRelease(LocalCluster):
        def find(self):
            raise Conflict("it speaks protocol 1, this client speaks 2; stop it with `iris cluster stop --force`")

    class Context(CliContext):
        def local_cluster(self, **options):
            return OtherRelease(**options)

    assert run(["cluster", "stop"], Context()) == 3
    assert "iris cluster stop --force" in capsys.readouterr().err
    assert run(["cluster", "stop", "--force"], Context()) == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error(closed: str) -> None:
    program = "import sys; from iris.cli.entry import main; sys.argv = ['iris', '--version']; main()"
    done = subprocess.run(["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, program], timeout=60, check=False)
    assert done.returncode == 0


def test_a_removed_current_directory_is_named(capsys, monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("IRIS_STATE_DIR", str(tmp_path / "state"))
    gone.rmdir()
    assert run(["job", "run", "--", "true"]) == 3
    assert "the current directory has been removed: change to another" in capsys.readouterr().err


def test_a_command_is_shown_as_it_would_be_typed():
    assert str(CommandEntrypoint(("sh", "-c", "echo a  b | wc"))) == "sh -c 'echo a  b | wc'"
