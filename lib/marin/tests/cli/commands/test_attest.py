import hashlib
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from marin.cli.output import Progress
from rigging.project.code_state import CODE_VARIABLE, CodeState
from support.marin.programs import run_program
from support.marin.recorded_runs import Done, RecordedStorage, ended, started, step_ended

Marin = Callable[..., Done]

SCRIPT = """
import os
import sys

from marin.execution import ExecutorStep, executor_main, mirrored, output_path_of, this_output_path, versioned
from marin.execution.config.step import InputName
from marin.execution.step_spec import StepSpec
from rigging.filesystem import marin_prefix, open_url

n = int(sys.argv.pop())
print("hello from the script")


def write(path, text):
    with open_url(path, "w") as file:
        file.write(text)


def numbers(config):
    write(config["out"] + "/numbers.json", str(list(range(config["n"]))))
    write(config["out"] + "/loss.csv", "loss\\n" + os.environ.get("LOSS", "0.5"))
    write(config["out"] + "/prefix.txt", marin_prefix())
    os.symlink("no-such-file", config["out"] + "/link")
    if "EXTRA" in os.environ:
        write(config["out"] + "/extra", "")
    return {"path": config["out"]}


def total(config):
    if "FAIL" in os.environ:
        raise ValueError("no cheese")
    assert open_url(config["far"], "r").read()
    texts = [open_url(config[name], "r").read() for name in ("numbers", "raw", "mirrored")]
    write(config["out"] + "/total.txt", "".join(texts))


def fixed(output_path):
    write(output_path + "/where.txt", "ran for " + output_path)


raw = {"raw": InputName.hardcoded("raw/x"), "mirrored": mirrored(versioned("raw/x"))}
data = ExecutorStep(name="numbers", fn=numbers, config={"n": versioned(n), "out": this_output_path()})
numbers_path = output_path_of(data, "numbers.json")
config = {**raw, "numbers": numbers_path, "far": mirrored(numbers_path), "out": this_output_path()}
sums = ExecutorStep(name="total", fn=total, config=config)
spec = StepSpec(name="fixed", fn=fixed, override_output_path=os.environ["MARIN_PREFIX"] + "-else/where")
found = ExecutorStep(name="found", fn=None, config=None, override_output_path="raw")
after = ExecutorStep(name="after", fn=lambda config: None, config=[output_path_of(found, "x")])
print(open(executor_main(steps=[sums, spec.as_executor_step(), after])[sums] + "/total.txt").read())
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of two runs of the script in processes of their own; the second finds all outputs."""
    place = tmp_path_factory.mktemp("recorded")
    for folder in (place / "prefix" / "raw", place / "other" / "raw"):
        folder.mkdir(parents=True)
        for name in ("x", ".executor_status"):
            (folder / name).write_text("SUCCESS")
    (place / "script.py").write_text(SCRIPT)
    for _ in range(2):
        run_program([sys.executable, "script.py", "3"], place, {**os.environ, "MARIN_PREFIX": str(place / "prefix")})
    return place


@pytest.fixture
def document(recorded: Path, marin: Marin, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The attestation of the second run; it is in a.json of the working directory, too."""
    monkeypatch.chdir(recorded)
    monkeypatch.setenv("MARIN_PREFIX", str(recorded / "prefix"))
    done = marin("attest", "script", "-o", "a.json")
    assert (done.code, done.out) == (0, "")
    assert "attested 5 step(s) of run script-" in done.err
    return json.loads(Path("a.json").read_text())


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def step(document: Any, name: str) -> Any:
    return next(item for item in document["steps"] if item["name"] == name)


def test_an_attestation_has_each_output_with_digests(document: Any, recorded: Path, marin: Marin) -> None:
    runs = document["runs"]
    assert {(run["command"], run["state"]) for run in runs.values()} == {("script.py 3", "succeeded")}
    assert all("click" in run["packages"] for run in runs.values())
    [first] = runs.keys() - {document["run"]}
    assert {item["name"]: item["run"] for item in document["steps"]} == {
        "numbers": first, "total": first, "fixed": first, "after": first, "found": None,
    }  # fmt: skip
    numbers = step(document, "numbers")
    content = (recorded / "prefix" / numbers["path"] / "numbers.json").read_bytes()
    assert [file["name"] for file in numbers["files"]] == [".artifact", "loss.csv", "numbers.json", "prefix.txt"]
    assert numbers["files"][2] == {
        "name": "numbers.json", "bytes": 9, "sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip
    assert numbers["made_by"]["version"]["config"] == {"n": 3}
    assert set(numbers["made_by"]["source"]) >= {"numbers", "write"}
    assert step(document, "fixed")["path"] == f"{recorded}/prefix-else/where"
    assert marin("attest", "script").json == document


def test_steps_are_rerun_in_a_fresh_prefix_and_leave_nothing(document: Any, recorded: Path, marin: Marin) -> None:
    before = contents(recorded)
    done = marin("verify", "a.json", "--json")
    assert (done.code, done.json["equal"]) == (0, True), done.err
    assert "hello from the script" in done.err
    assert done.err.endswith(
        "marin: 2 equal, 2 close, 0 different, 0 failed; 1 step(s) not run\n"
    )  # it has no function
    files = {f"{item['name']}/{file['name']}": file["status"] for item in done.json["steps"] for file in item["files"]}
    # What only says where the output is, is no difference; that of the prefix tells that it was a fresh one.
    close = ["numbers/.artifact", "numbers/prefix.txt", "fixed/where.txt"]
    assert [name for name, status in files.items() if status != "equal"] == close
    assert contents(recorded) == before, "attested outputs stay, and the new ones are removed"


@pytest.mark.parametrize(
    ("words", "variables", "code", "said"),
    [
        (["--tolerance", "0.01"], {"LOSS": "0.502"}, 0, "close      {numbers}  4 files\n"),
        (["--tolerance", "1", "--tolerance", "numbers/*=0.001"], {"LOSS": "0.502"}, 1,
         'different  {numbers}  4 files\n           loss.csv: line 2, loss: "0.5" -> "0.502"\n'),
        # Where there are only the inputs, outputs are compared by their digests.
        (["--prefix", "other"], {}, 0, "close      {numbers}  4 files\n"),
        (["--prefix", "other"], {"LOSS": "0.502"}, 1, "because the attested file is not there\n"),
        ([], {"EXTRA": "1"}, 1, "           extra: not attested\n"),
        ([], {"FAIL": "1"}, 1, "failed     {total}  ValueError: no cheese\n"),
    ],
)  # fmt: skip
def test_outputs_are_compared_within_tolerances(
    words: list[str], variables: dict[str, str], code: int, said: str,
    document: Any, recorded: Path, marin: Marin, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = marin("verify", *words, "a.json")
    assert done.code == code, done.out + done.err
    assert said.format(numbers=step(document, "numbers")["path"], total=step(document, "total")["path"]) in done.out
    kept = Path(done.err.rpartition("new outputs are kept in ")[2].strip()) if code else None
    assert kept is None or (kept / step(document, "numbers")["path"] / "loss.csv").exists()


BESIDE = """
from marin.execution import ExecutorStep, executor_main, output_path_of, this_output_path

def first(config):
    open(config["out"] + "/x", "w").write("1")

def second(config):
    open(config["out"] + "/y", "w").write(open(config["in"]).read())

a = ExecutorStep(name="a", fn=first, config={"out": this_output_path()})
b = ExecutorStep(name="b", fn=second, config={"in": output_path_of(a, "x"), "out": this_output_path()})
executor_main(steps=[b])
"""


def test_outputs_beside_old_ones_are_like_others(tmp_path: Path, marin: Marin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path / "prefix"))
    for text, options in ((BESIDE, []), (BESIDE.replace('"1"', '"2"'), ["--rerun-changed=fix"])):
        Path("script.py").write_text(text)
        run_program([sys.executable, "script.py", *options], tmp_path, os.environ)
    newest, oldest = marin("runs", "--json").json
    assert marin("attest", newest["run"], "-o", "a.json").code == 0
    document = json.loads(Path("a.json").read_text())
    paths = [str(item["path"]) for item in document["steps"]]
    assert [path.rpartition("@")[2] for path in paths] == ["fix", "fix"]
    done = marin("verify", "a.json")
    assert (done.code, done.err.rpartition("marin: ")[2]) == (0, "2 equal, 0 close, 0 different, 0 failed\n")
    shown = marin("show", "a", "--json").json
    assert (shown["path"], shown["made_by"]["run"]) == (f"{tmp_path}/prefix/{paths[0]}", newest["run"])
    [changed, _] = marin("diff", oldest["run"], newest["run"], "--json").json["changed"]
    assert (changed["after"], changed["code"][0]["where"]) == (f"{tmp_path}/prefix/{paths[0]}", "source of first")
    assert marin("rm", oldest["run"], "-y").code == 0
    assert sorted(path.name for path in Path("prefix").glob("?-*")) == paths
    refers = "a run, or an output that is kept, refers to it"
    assert [output["kept"] for output in marin("gc", "--kept", "--json").json] == [refers, refers]


def test_a_change_of_code_is_shown_with_what_came_of_it(
    document: Any, marin: Marin, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Path("script.py")
    script.write_text(SCRIPT.replace('"".join(texts)', '"-".join(texts)'))
    done = marin("verify", "a.json")
    script.write_text(SCRIPT)
    assert done.code == 1
    path, code = step(document, "total")["path"], step(document, "total")["made_by"]["source"]["total"]
    assert (
        f"different  {path}  2 files\n           made with other values or code: source of total: {code[7:]} ->"
        in done.out
    )
    assert 'total.txt: line 1: "[0, 1, 2]SUCCESSSUCCESS" -> "[0, 1, 2]-SUCCESS-SUCCESS"' in done.out
    assert done.out.count("made with") == 1
    assert "attested at" not in done.err
    monkeypatch.setenv(CODE_VARIABLE, CodeState(commit="c0ffee", branch="main").handed())
    assert "marin: attested at no git checkout; the code here is at c0ffee (main)\n" in marin("verify", "a.json").err
    monkeypatch.setenv(CODE_VARIABLE, CodeState(digest="1").handed())
    assert "marin: uncommitted changes differ from those of the attested run" in marin("verify", "a.json").err
    document["runs"][document["run"]]["packages"]["click"] = "0.1"
    Path("b.json").write_text(json.dumps(document))
    assert f'click: "0.1" -> "{version("click")}"' in marin("verify", "b.json").err.partition("packages differ: ")[2]


def test_progress_is_told_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 0.9, 1.0, 1.9, 2.1, 9.0])
    progress = Progress(lambda: next(times), "outputs read")
    for done in range(1, 7):
        progress.tell(1000 * done, 6000)
    assert capsys.readouterr().err == "marin: 3,000 of 6,000 outputs read\nmarin: 5,000 of 6,000 outputs read\n"


def test_a_sample_reads_attested_inputs_that_are_still_the_same(document: Any, recorded: Path, marin: Marin) -> None:
    def chosen(seed: int) -> list[str]:
        done = marin("verify", "--json", "--sample", "1", "--seed", str(seed), "a.json")
        return [item["name"] for item in done.json["steps"]]

    seed = next(seed for seed in range(100) if chosen(seed) == ["total"])
    path = recorded / "prefix" / step(document, "numbers")["path"] / "numbers.json"
    before = path.read_bytes()
    path.write_text("[0, 1, 3]")
    done = marin("verify", "--sample", "1", "--seed", str(seed), "a.json")
    path.write_bytes(before)
    assert done.code == 3
    assert (
        f"1 input file(s) of the chosen steps do not match the attestation: {path}; verify without --sample" in done.err
    )


def test_what_cannot_be_verified_is_refused(document: Any, marin: Marin) -> None:
    lacks = f"the script lacks 2 of 5 attested step(s), such as {step(document, 'numbers')['path']}: a versioned"
    for words, code, said in [
        (["a.json", "--", "script.py", "4"], 3, lacks),
        (["--tolerance", "-1", "a.json"], 2, "'-1': give a number from 0, or GLOB=NUMBER"),
        (["c.json"], 4, "no file c.json"),
        (["script.py"], 3, "script.py is not JSON"),
        (["a.json", "gone.py"], 4, "no script gone.py; start in the directory where the run"),
    ]:
        done = marin("verify", *words)
        assert (done.code, said in done.err) == (code, True), done.err


def test_a_run_that_has_not_succeeded_is_not_attested(storage: RecordedStorage, marin: Marin) -> None:
    a, b = storage.step("a-000001"), storage.step("b-000002")
    storage.run("train-aaaaaa", [a, b], [started(2), step_ended(a), step_ended(b, "failed"), ended()])
    done = marin("attest", "train")
    assert (done.code, "has not succeeded (failed): b (failed); attest a run" in done.err) == (3, True)
    (Path(b["output_path"]) / ".executor_status").unlink()
    storage.run("train-aaaaaa", [a, b], [started(2), step_ended(a), step_ended(b), ended()])
    done = marin("attest", "train")
    assert (done.code, f"1 of its outputs no longer exist: {b['output_path']} (None)" in done.err) == (3, True)


def test_a_change_since_the_step_ended_and_a_moved_prefix_are_told(storage: RecordedStorage, marin: Marin) -> None:
    a = storage.step("a-000001")
    storage.run("train-aaaaaa", [a], [started(1), step_ended(a), ended()])
    assert marin("attest", "train").json["steps"][0]["changed"] == []
    os.utime(storage.root / "a-000001/.executor_status", (0, 1000))
    (storage.root / "a-000001/data").write_text("edited")
    done = marin("attest", "train")
    assert done.json["steps"][0]["changed"] == ["data"]
    assert f"{a['output_path']}: changed after its step ended: data\n" in done.err
    moved = storage.root.rename(storage.root.with_name("moved"))
    done = marin("attest", "train", "--prefix", str(moved))
    said = f"no longer below {storage.root}, but below {moved}: run its script again with --prefix {moved}, which finds"
    assert (done.code, said in done.err) == (3, True)
