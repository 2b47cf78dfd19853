import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fray.current_client import set_current_client
from marin.execution import ExecutorMainConfig, executor_main, mirrored
from marin.execution.remote import remote
from marin.execution.run.prefix import prefix_in_force
from marin.execution.script.main import parse_command_line
from rigging.errors import InvalidRequest, StepFailed
from rigging.filesystem import open_url
from support.marin.recorder import RecordingClient
from support.marin.steps import MakeExecutor, MakeStep


def do_nothing_far(config: Any) -> None:
    """The function of a job."""


@pytest.mark.parametrize(
    ("words", "config"),
    [
        ([], ExecutorMainConfig()),
        (["--dry_run", "--prefix=/p=q"], ExecutorMainConfig(prefix="/p=q", dry_run=True)),
        (["--dry_run", "false", "--max_concurrent", "3"], ExecutorMainConfig(max_concurrent=3)),
        (["--force_run_failed", "False"], ExecutorMainConfig(force_run_failed=False)),
        (["--run_only", '["^a$", "b.*"]'], ExecutorMainConfig(run_only=["^a$", "b.*"])),
        (["--run_only", "^a: b$", "--force=b"], ExecutorMainConfig(run_only=["^a: b$"], force=["b"])),
        (
            ["--force", "a", "--strict", "--force", "[b, '[c]']"],
            ExecutorMainConfig(strict=True, force=["a", "b", "[c]"]),
        ),
        (["--executor_info_base_path", "/i"], ExecutorMainConfig(executor_info_base_path="/i")),
        (["--explain", "--step", "[ab]: c"], ExecutorMainConfig(explain=True, step="[ab]: c")),
        (["--rerun-changed", "1e5"], ExecutorMainConfig(rerun_changed="1e5")),
        (["--strict", "-v"], ExecutorMainConfig(strict=True, verbose=True)),
        (["--env-file", "a b", "--strict", "--env_file=[c]"], ExecutorMainConfig(strict=True, env_file=["a b", "[c]"])),
    ],
)
def test_options(words: list[str], config: ExecutorMainConfig) -> None:
    assert parse_command_line(words) == config


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--max_concurrent", "0"], "max_concurrent=0: must be at least 1"),
        (["--max_concurrent", "many"], "many"),
        (["--run_only", "a("], "--run_only: 'a(' is not a regular expression: missing )"),
        (["--force", "a("], "--force: 'a(' is not a regular expression: missing )"),
        (["--explain", "--step", "*"], "--step: '*' is not a regular expression: nothing to repeat"),
        (["--step", "stats"], "--step stats works only with --explain; use --run_only to choose steps to run"),
        (["--rerun-changed=a/b"], "--rerun-changed='a/b': use only letters, digits, '-' and '_'"),
        (["--rerun_changed=a", "--dry_run"], "--rerun-changed=a: dry_run reads no storage"),
        (["--dryrun"], "unrecognized arguments: --dryrun; did you mean --dry_run?"),
        (["--config_path", "/nowhere.yaml"], "--config_path: cannot read it: [Errno 2] No such file or directory"),
        (["--max_concurent=3"], "did you mean --max_concurrent?"),
        (["--nothing-like-it"], "options: --prefix, "),
        (["--env-file"], "--env_file needs the name of a file"),
    ],
)
def test_a_wrong_option_is_a_usage_error(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_command_line(words)
    assert caught.value.code == 2
    assert reason in capsys.readouterr().err


def test_words_are_read_without_a_config(make_step: MakeStep, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = make_step("a")
    monkeypatch.setattr(sys, "argv", ["script.py", "--prefix", prefix, "--max_concurrent", "0"])
    assert executor_main(ExecutorMainConfig(prefix=prefix), steps=[step])[step].startswith(f"{prefix}/a-")
    assert Path(prefix, "experiments").is_dir()
    with pytest.raises(SystemExit):
        executor_main(steps=[step])
    monkeypatch.setattr(sys, "argv", ["script.py", "--prefix", f"{prefix}2"])
    assert executor_main(steps=[step], description="d")[step].startswith(f"{prefix}2/a-")


@pytest.mark.parametrize("words", [["--run_only", "^Stat$"], ["--explain", "--step", "stat$"]])
def test_a_name_that_no_step_has_is_a_usage_error_and_raised_to_a_program(
    words: list[str], make_step: MakeStep, prefix: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["script.py", "--prefix", prefix, *words])
    steps = [make_step("stats"), make_step("other")]
    with pytest.raises(SystemExit) as caught:
        executor_main(steps=steps)
    assert caught.value.code == 2
    assert "no step has such a name; did you mean stats?; steps are: other, stats" in capsys.readouterr().err
    with pytest.raises(InvalidRequest, match="nowhere"):
        executor_main(ExecutorMainConfig(prefix=prefix, run_only=["nowhere"]), steps)
    assert not os.path.exists(prefix)


def test_variables_of_files_are_those_of_the_functions_and_of_the_jobs(
    make_step: MakeStep, tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "a.env", tmp_path / "b.env"
    first.write_text(f"MARIN_PREFIX={prefix}\nSITE_KEY=s3cr3t-value\nWHICH=first\n")
    second.write_text("WHICH=second\nOWN=of the file\n")
    monkeypatch.setattr(sys, "argv", ["script.py", "--env-file", str(first), "--env-file", str(second)])
    monkeypatch.setenv("MARIN_PREFIX", "/elsewhere")
    monkeypatch.setenv("WHICH", "of the shell")
    seen: list[tuple[str | None, ...]] = []
    client = RecordingClient()
    far = remote(do_nothing_far, env_vars={"OWN": "of the function"})
    with set_current_client(client):
        here = make_step("here", fn=lambda _: seen.append((os.environ["WHICH"], os.environ["SITE_KEY"])))
        paths = executor_main(steps=[here, make_step("far", fn=far)])
    assert seen == [("second", "s3cr3t-value")]
    assert all(path.startswith(prefix) for path in paths.values())
    [asked] = client.requests
    told = asked.environment.env_vars
    assert (told["WHICH"], told["SITE_KEY"], told["OWN"]) == ("second", "s3cr3t-value", "of the function")
    assert told["MARIN_PREFIX"] == prefix
    assert (os.environ["MARIN_PREFIX"], os.environ["WHICH"]) == ("/elsewhere", "of the shell")
    assert "SITE_KEY" not in os.environ
    # The code of a run has this test's own text.
    files = (path for path in Path(prefix).rglob("*") if path.is_file() and path.parent.name != "code")
    written = b"".join(path.read_bytes() for path in files)
    assert b"s3cr3t-value" not in written


def test_a_bad_file_of_variables_ends_a_script_and_raises_elsewhere(
    make_step: MakeStep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / ".env"
    bad.write_text("A=1\nhunter2\n")
    monkeypatch.setattr(sys, "argv", ["script.py", "--env-file", str(bad)])
    with pytest.raises(SystemExit) as ended:
        executor_main(steps=[make_step("a")])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert f"script.py: error: env file {bad}, line 2: there is no '='" in told
    assert "hunter2" not in told
    with pytest.raises(InvalidRequest, match=r"\.env, line 2"):
        executor_main(ExecutorMainConfig(env_file=[str(bad)]), steps=[make_step("a")])


def test_a_notebook_has_no_command_line(make_step: MakeStep, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", prefix)
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py", "-f", "/run/kernel-1.json"])
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    step = make_step("a")
    assert executor_main(steps=[step])[step].startswith(f"{prefix}/a-")
    # A script under IPython has words of its own.
    sys.modules["__main__"].__file__ = "script.py"
    with pytest.raises(SystemExit):
        executor_main(steps=[step])


@pytest.mark.parametrize("before", [None, "/elsewhere"])
def test_the_runs_prefix_is_that_of_its_functions_meanwhile(
    before: str | None, make_step: MakeStep, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in jobs: `mirrored("raw/x")` is below the run's prefix, whatever the process's own one holds."""
    monkeypatch.delenv("MARIN_PREFIX", raising=False)
    if before is not None:
        monkeypatch.setenv("MARIN_PREFIX", before)
    Path(prefix, "raw").mkdir(parents=True)
    Path(prefix, "raw/x").write_text("the run's")
    seen: list[str] = []

    def read(config: Any) -> None:
        with open_url(config.x, "r") as file:
            seen.append(file.read())

    executor_main(ExecutorMainConfig(prefix=prefix), steps=[make_step("a", mirrored("raw/x"), fn=read)])
    assert seen == ["the run's"]
    assert os.environ.get("MARIN_PREFIX") == before


def test_two_prefixes_at_once(prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("MARIN_PREFIX", raising=False)
    with prefix_in_force(prefix), prefix_in_force(prefix):
        assert not caplog.messages
        with prefix_in_force("/other"):
            assert os.environ["MARIN_PREFIX"] == prefix
        assert f"another run of this process has the prefix {prefix}" in caplog.text
        assert os.environ["MARIN_PREFIX"] == prefix
    assert "MARIN_PREFIX" not in os.environ
    with prefix_in_force("/other"):
        assert os.environ["MARIN_PREFIX"] == "/other"


def test_an_executor_says_that_its_steps_read_below_another_prefix(
    make_step: MakeStep, make_executor: MakeExecutor, prefix: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setenv("MARIN_PREFIX", "/elsewhere")
    make_executor().run([make_step("plain"), make_step("a", mirrored("raw/x"))])
    assert f"steps a read mirror:// paths, which this process looks for below /elsewhere, not below {prefix}" in (
        caplog.text.replace("the run's prefix ", "")
    )
    caplog.clear()
    monkeypatch.setenv("MARIN_PREFIX", prefix)
    make_executor().run([make_step("b", mirrored("raw/x"))])
    assert "mirror://" not in caplog.text


def test_the_keyword_wins_over_the_option(make_step: MakeStep, prefix: str) -> None:
    with pytest.raises(ValueError, match="max_concurrent=-5"):
        executor_main(ExecutorMainConfig(prefix=prefix, max_concurrent=2), steps=[make_step("a")], max_concurrent=-5)


def test_the_summary_of_each_step(make_step: MakeStep, prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: Any) -> None:
        raise ValueError("bad\nsecond line")

    fine, bad = make_step("fine"), make_step("bad", fn=fail)
    config = ExecutorMainConfig(prefix=prefix)
    path = executor_main(config, steps=[fine])[fine]
    assert "fine  SUCCESS (ran 0.0" in (printed := capsys.readouterr().out)
    assert path in printed
    with pytest.raises(StepFailed):
        executor_main(config, steps=[make_step("after", [fine, bad])])
    lines = capsys.readouterr().out.splitlines()
    assert f"fine   SUCCESS (already done)  {path}" in lines
    assert any(re.match(r"bad    FAILED after \d+\.\d\ds \(ValueError: bad\)  ", line) for line in lines)
    assert any(line.startswith("after  DEP_FAILED (not run)  ") for line in lines)


KERNEL = """
import os, signal, sys
from types import SimpleNamespace
from marin.execution.script.main import exit_on_signals
sys.modules["IPython"] = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
with exit_on_signals():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        print("the run ends", flush=True)
"""


@pytest.mark.process
def test_a_kernel_is_ended_by_the_signal_after_the_end_of_its_run() -> None:
    """SystemExit would end the cell alone."""
    done = subprocess.run([sys.executable, "-c", KERNEL], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "the run ends\n", "")


FAILING = """
from marin.execution import ExecutorStep, executor_main
def look_up(table):
    return table["missing"]
def fn(config):
    look_up({})
if __name__ == "__main__":
    executor_main(steps=[ExecutorStep(name="bad", fn=fn, config=None)])
"""


@pytest.mark.process
@pytest.mark.parametrize("words", [[], ["-v"]])
def test_a_failure_shows_the_frames_of_the_steps_own_code_once(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "script.py").write_text(FAILING)
    command = [sys.executable, "script.py", "--prefix", str(tmp_path / "prefix"), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    if words:
        assert "attempt.py" in done.stderr
        return
    assert done.stderr.count("Traceback (most recent call last)") == 1
    assert done.stderr.count('return table["missing"]') == 1
    assert "marin/execution/" not in done.stderr
    assert done.stderr.endswith("StepFailed: 1 step(s) failed: see above\n")
    assert done.stderr.count("KeyError: 'missing'") == 3, "as it happens, above the frames and below them"
    assert len(done.stderr.splitlines()) < 25


@pytest.mark.process
def test_a_debugger_that_nobody_could_answer_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FAILING)
    command = [sys.executable, "script.py", "--pdb", "--prefix", str(tmp_path / "prefix")]
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == ("script.py: error: --pdb: standard input is not a terminal, so a debugger cannot be used\n")
    assert not (tmp_path / "prefix").exists()


@pytest.mark.process
def test_importing_the_executor_imports_nothing_heavy() -> None:
    heavy = ("draccus", "fsspec", "grpc", "iris", "numpy", "ray")
    code = f"import sys, marin.execution.executor; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
