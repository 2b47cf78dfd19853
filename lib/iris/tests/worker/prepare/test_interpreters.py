"""Which Python of a host is taken for what a job asks for, and what is said when there is none."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from iris.domain.states import FailureKind
from iris.worker.prepare.interpreters import Interpreter, Interpreters, own_interpreter
from iris.worker.types import PreparationFailed

OWN = ".".join(map(str, sys.version_info[:2]))


class Tools:
    """Programs that answer as the test says, by path; `uv` answers with the path of one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: dict[str, tuple[bool, str]] = {}
        self.uv = (False, "no such Python")
        self.asked: list[str] = []
        self.here: list[str] = []

    def install(self, name: str, version: str, *, succeeds: bool = True, noise: str = "") -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o700)
        said = {"version": version, "identity": f"of {name}", "packages": [f"/packages/{version}"]}
        self.answers[str(path)] = (succeeds, noise + json.dumps(said) + "\n")
        return str(path)

    async def run(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> tuple[bool, str]:
        self.asked.append(os.path.basename(argv[0]))
        if "find" in argv:
            assert env["NO_COLOR"] == "1", "a coloured path is none"
            return self.uv
        return self.answers[argv[0]]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    monkeypatch.setattr("iris.worker.prepare.interpreters.uv_program", lambda: "/bin/uv")
    made = Tools(tmp_path)
    monkeypatch.setattr("iris.worker.prepare.interpreters.python_programs", lambda request, path: made.here)
    return made


def find(tools: Tools, request: str, hint: str = "") -> Interpreter:
    return asyncio.run(Interpreters(tools, {"PATH": "/bin"}, tools.folder).find(request, hint))


@pytest.mark.parametrize("request_", ["", OWN, f">={OWN}"])
def test_the_workers_own_comes_first(tools: Tools, request_: str) -> None:
    found = find(tools, request_, hint=tools.install("other", f"{OWN}.0"))
    assert found == own_interpreter()
    assert (found.program, tools.asked) == (sys.executable, [])
    assert found.packages


def test_then_the_hint_then_what_uv_finds_then_those_here(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    hint, by_uv = tools.install("hint", "3.98.1"), tools.install("by-uv", "3.98.2")
    here = tools.install("here", "3.98.3")
    tools.here.append(here)
    tools.uv = (True, f"warning: something\n{by_uv}\n")
    assert find(tools, "3.98", hint) == Interpreter(hint, "3.98.1", "of hint", ("/packages/3.98.1",))
    assert find(tools, "3.98").program == by_uv
    tools.uv = (False, by_uv)
    assert find(tools, "3.98").program == here

    def missing() -> str:
        raise FileNotFoundError("uv")

    monkeypatch.setattr("iris.worker.prepare.interpreters.uv_program", missing)
    assert find(tools, "3.98").program == here


def test_what_does_not_fit_is_passed_over_and_named(tools: Tools) -> None:
    hint, broken = tools.install("hint", "3.97.1"), tools.install("broken", "3.98.0", succeeds=False)
    tools.here.extend([broken, tools.install("older", "3.96.5")])
    with pytest.raises(PreparationFailed) as refused:
        find(tools, "3.98", hint)
    assert refused.value.kind is FailureKind.ENVIRONMENT
    own = ".".join(map(str, sys.version_info[:3]))
    assert str(refused.value).startswith("the job needs Python 3.98, but this worker has only ")
    for version in (own, "3.97.1", "3.96.5"):
        assert version in str(refused.value)
    assert "`uv python install 3.98`), or ask for another: a workspace does by its .python" in str(refused.value)
    with pytest.raises(PreparationFailed, match=r"`uv python install '>=3\.98'`\), or ask for another"):
        find(tools, ">=3.98")


def test_one_that_was_found_is_not_looked_for_again_as_long_as_it_is_there(tools: Tools) -> None:
    hint = tools.install("hint", "3.98.1")
    interpreters = Interpreters(tools, {}, tools.folder)

    async def twice() -> tuple[Interpreter, Interpreter, int, Interpreter]:
        first = await interpreters.find("3.98", hint)
        asked = len(tools.asked)
        second = await interpreters.find("3.98", hint)
        assert len(tools.asked) == asked
        os.unlink(hint)
        tools.here.append(tools.install("here", "3.98.3"))
        return first, second, asked, await interpreters.find("3.98", hint)

    first, second, _, third = asyncio.run(twice())
    assert first is second
    assert third.version == "3.98.3"


def test_a_program_may_greet_before_it_answers_must_be_executable_and_say_something_useful(tools: Tools) -> None:
    program = tools.install("greets", "3.98.1", noise="hello\n")
    interpreters = Interpreters(tools, {}, tools.folder)
    found = asyncio.run(interpreters.probe(program))
    assert found is not None
    assert (found.version, found.packages) == ("3.98.1", ("/packages/3.98.1",))
    assert asyncio.run(interpreters.probe(str(tools.folder / "none"))) is None
    odd = ('{"version": "3.98.1"}\n', '{"version": "1", "identity": "", "packages": 7}\n')
    for said in ("", "no json\n", "[]\n", *odd):
        tools.answers[program] = (True, said)
        assert asyncio.run(interpreters.probe(program)) is None
