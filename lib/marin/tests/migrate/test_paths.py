import json
import os
import sys
from pathlib import Path

import pytest

from marin.migrate.__main__ import main
from support.marin.programs import run_program

SCRIPT = """
import sys
from marin.execution import ExecutorStep, executor_main, output_path_of, this_output_path, versioned

def run(config):
    with open(config["log"], "a") as file:
        file.write("ran\\n")

def step(name, inputs=None, **more):
    return ExecutorStep(name, run, {"log": LOG, "in": inputs, "out": this_output_path(), **more})

raw = step("raw", n=versioned(1))
train = step("train", output_path_of(raw, "text"), lr=versioned(LR))
evals = step("evals", train)
if __name__ == "__main__":
    executor_main(steps=[evals])
"""


def write(tmp_path: Path, lr: float) -> str:
    script = tmp_path / f"script-{lr}.py"
    script.write_text(SCRIPT.replace("LOG", repr(str(tmp_path / "log"))).replace("LR", repr(lr)))
    return str(script)


def test_each_step_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bucket = str(tmp_path / "bucket")
    run_program([sys.executable, write(tmp_path, 0.1)], env={**os.environ, "MARIN_PREFIX": bucket})
    (tmp_path / "log").unlink()
    monkeypatch.setenv("MARIN_PREFIX", "/elsewhere")
    for words in ([], ["--prefix", "/of/the/script"]):
        assert main(["paths", write(tmp_path, 0.1), "--against", bucket, *words]) == 0
        assert capsys.readouterr().out.endswith(f"3 step(s) against {bucket}: 3 found\n")
    assert main(["paths", write(tmp_path, 0.3), "--against", bucket]) == 0
    lines = capsys.readouterr().out.splitlines()
    old = json.loads(next(Path(bucket).glob("train-*/.executor_info")).read_text())["output_path"]
    assert lines[0].startswith(f"found       raw  {bucket}/raw-")
    assert lines[1].startswith(f"new         train  {bucket}/train-")
    assert lines[2].split() == ["differs", "from", old, "in"]
    assert lines[3].strip() == "lr: 0.1 -> 0.3"
    assert lines[4].startswith("new         evals")
    assert "dependency train: lr: 0.1 -> 0.3" in lines[6]
    assert lines[-1] == f"3 step(s) against {bucket}: 1 found, 2 new"
    assert os.environ["MARIN_PREFIX"] == "/elsewhere"
    assert not (tmp_path / "log").exists(), "no step has run"


def test_outputs_of_older_executors_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bucket = tmp_path / "bucket"
    words = ["paths", write(tmp_path, 0.1), "--against", str(bucket)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "no output of this name exists yet" in out
    raw = Path(next(word for word in out.split() if word.startswith(f"{bucket}/raw-")))
    raw.mkdir(parents=True)
    for status, told in (("SUCCESS", "1 found, 2 new\n"), ("FAILED", "1 unfinished, 2 new\n")):
        (raw / ".executor_status").write_text(f'{{"status": "RUNNING"}}\n{{"status": "{status}"}}\n')
        assert main(words) == 0
        assert capsys.readouterr().out.endswith(told)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("int('none')", ["line 2, in <module>", "ValueError: invalid literal"]),
        ("import fray.v2", ["line 2, in <module>", "No module named 'fray.v2'"]),
        ("x = (", ["line 2", "SyntaxError: '(' was never closed"]),
    ],
)
def test_a_script_that_fails_before_its_steps_is_told_with_its_own_lines(
    tmp_path: Path, line: str, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "failing.py"
    script.write_text(f"import sys\n{line}\n")
    assert main(["paths", str(script), "--against", str(tmp_path)]) == 2
    words = capsys.readouterr().err
    assert [part for part in [f'File "{script}"', *told] if part not in words] == []
    assert words.endswith(f"migrate: {script} failed before its steps\n")
    assert words.count("File ") == 1, "frames of what runs the script are no help"


def test_a_script_that_comes_to_no_steps_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "early.py"
    for code in (0, 3):
        script.write_text(f"raise SystemExit({code})")
        with pytest.raises(SystemExit):
            main(["paths", str(script), "--against", str(tmp_path)])
        assert capsys.readouterr().err == f"migrate: {script} ended by itself before its steps\n"
    script.write_text("")
    assert main(["paths", str(script), "--against", str(tmp_path)]) == 0
    assert "the script runs no steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit({evals: 1})", 0), ("sys.exit(3)", 0), ("open('/nowhere/x')", 2), ("raise OSError", 2)]
)
def test_what_a_script_does_later(tmp_path: Path, end: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(write(tmp_path, 0.1))
    script.write_text(f"{script.read_text()}    {end}\n")
    assert main(["paths", str(script), "--against", str(tmp_path)]) == code
    assert capsys.readouterr().out.endswith(f"3 step(s) against {tmp_path}: 3 new\n")


def test_sweeps_do_not_run(tmp_path: Path) -> None:
    script = Path(write(tmp_path, 0.1))
    sweep = (
        "from marin.execution.sweep import *; {name}({root!r}, [SweepTarget('a', 1)], lambda t: open({log!r}, 'w'))\n"
    )
    for name in ("claim_and_run", "run_sweep"):
        script.write_text(sweep.format(name=name, root=str(tmp_path / "sweep"), log=str(tmp_path / "log")))
        assert main(["paths", str(script), "--against", str(tmp_path)]) == 0
    assert not (tmp_path / "log").exists()
    assert not (tmp_path / "sweep").exists()


def test_a_bucket_in_which_nothing_is_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paths", write(tmp_path, 0.1), "--against", str(tmp_path / "bukcet")]) == 0
    assert capsys.readouterr().err.endswith(f"migrate: there is nothing at {tmp_path}/bukcet; check the storage root\n")
    assert main(["paths", write(tmp_path, 0.1), "--against", str(tmp_path)]) == 0
    assert "there is nothing" not in capsys.readouterr().err
    assert main(["paths", write(tmp_path, 0.1), "--against", "s4://bucket"]) == 2
    assert "nothing here opens s4:// URLs" in capsys.readouterr().err


def test_an_info_of_another_form_is_no_obstacle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    versions = '[] 3 {"config":[]} {"config":1,"dependencies":2} {"config":{},"dependencies":[3,null,[]]}'
    for version in versions.split():
        for name in ("raw", "train"):
            output = tmp_path / f"{name}-000000"
            output.mkdir(exist_ok=True)
            (output / ".executor_info").write_text(f'{{"version": {version}}}')
        assert main(["paths", write(tmp_path, 0.1), "--against", str(tmp_path)]) == 0
        assert capsys.readouterr().out.endswith(f"3 step(s) against {tmp_path}: 3 new\n")
