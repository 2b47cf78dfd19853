import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fray.cli.main import run_command_line
from fray.testing import eventually

RUN = [sys.executable, "-m", "fray.cli", "run", "--backend", "local", "--", "sh", "-c"]


def test_backends_and_what_they_lack(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from fray import registry

    absent = registry.Backend("far", "absent.client", ("far", "far://host"), extra="far", needs="absent_package")
    monkeypatch.setattr(registry, "BACKENDS", (*registry.BACKENDS, absent))
    monkeypatch.setenv("FRAY_CLIENT", "iris://somewhere:1")
    assert run_command_line(["backends"]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = next(line for line in lines if "far" in line)
    assert "no: absent_package is not installed: `uv pip install 'marin-fray[far]'`" in told
    assert next(line for line in lines if " iris " in line).startswith("* iris")
    assert run_command_line(["backends", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows["local"].values()) == ["local", ["local", "local://?processes=1"], True, None, False]
    assert list(rows["local"]) == ["name", "specs", "usable", "why_not", "current"]
    assert (rows["far"]["usable"], rows["iris"]["current"]) == (False, True)
    monkeypatch.setenv("FRAY_CLIENT", "nix")
    assert run_command_line(["backends"]) == 0
    assert "FRAY_CLIENT is 'nix', which is not in this list" in capsys.readouterr().out


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 4", 4), ("kill -TERM $$", 143)])
def test_run_ends_with_the_commands_exit_code(script: str, code: int) -> None:
    assert run_command_line(["run", "--backend", "local", "--", "sh", "-c", script]) == code


def test_run_shows_output_and_gives_it_variables(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.env").write_text("A=of the file\nB=too\n")
    words = ["run", "-e", "A=b=c", "-e", "EMPTY=", "--env-file", "v.env", "--backend", "local", "--", "sh", "-c"]
    assert run_command_line([*words, 'echo "$A[${EMPTY-unset}]$B"; pwd; printf "no newline"']) == 0
    assert capfd.readouterr().out == f"b=c[]too\n{tmp_path.resolve()}\nno newline"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["run", "--backend", "nix", "--", "true"], 3, "fray client 'nix' is not known; known: local"),
        (["run", "-e", "NAME", "--", "true"], 2, "'NAME' is not KEY=VALUE"),
        (["run", "--env-file", "none.env", "--", "true"], 3, "env file none.env: No such file"),
        (["run"], 2, "Missing argument 'COMMAND...'"),
        (["run", "--ram", "lots", "--", "true"], 3, "'lots' is not a size"),
        (["run", "--backend", "local", "--", "no-such-program"], 1, "cannot start 'no-such-program'"),
    ],
)
def test_what_is_wrong_is_told(words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(words) == code
    assert told in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_the_job_and_says_so(number: signal.Signals, code: int) -> None:
    command = [*RUN, "echo $$; exec sleep 300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        job_pid = int(process.stdout.readline())
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "stopping job local-1-fray-run" in err
    assert "stopped job local-1-fray-run" in err
    assert not Path(f"/proc/{job_pid}").exists()


@pytest.mark.process
def test_an_ignored_hangup_stays_ignored(tmp_path: Path) -> None:
    begun, end = tmp_path / "begun", tmp_path / "end"
    script = f'echo > "{begun}"; while ! [ -e "{end}" ]; do sleep 0.02; done'
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = subprocess.Popen([*RUN, script], stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGHUP, ignored)
    with process:
        eventually(begun.exists, "the job runs")
        process.send_signal(signal.SIGHUP)
        end.touch()
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.process
def test_characters_that_a_write_splits_are_shown_whole(tmp_path: Path) -> None:
    end = tmp_path / "end"
    script = f"printf 'a \\342\\202'; while ! [ -e '{end}' ]; do sleep 0.02; done; printf '\\254 b'"
    with subprocess.Popen([*RUN, script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"a "
        end.touch()
        assert process.stdout.read() == b"\xe2\x82\xac b"
    assert process.returncode == 0
