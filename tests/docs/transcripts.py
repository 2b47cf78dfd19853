"""Pages that show commands with what they print, and edits of a script between them: all of it done, and compared."""

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import blocks_of


@dataclass(frozen=True)
class Command:
    """A command of a page, and the lines that the page shows below it."""

    text: str
    shown: tuple[str, ...]

    @property
    def fails(self) -> bool:
        """Whether the page shows an error's line, so that it has to end with another code than 0."""
        return any(re.match(r"StepFailed: |\w+Error: ", line) for line in self.shown)


@dataclass(frozen=True)
class Edit:
    """Lines of a script, and those that the page puts in their place."""

    before: str
    after: str


def actions(page: str) -> Iterator[Command | Edit]:
    """What a reader of a page does, in order."""
    for block in blocks_of(page):
        if block.language == "diff":
            lines = block.text.splitlines()
            yield Edit(
                "\n".join(line[1:] for line in lines if line[:1] in "- "),
                "\n".join(line[1:] for line in lines if line[:1] in "+ "),
            )
        elif block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                text, *shown = part.replace("\\\n", "").splitlines()
                yield Command(text, tuple(line for line in shown if line.strip() and line.strip() != "..."))


def walk(page: str, script: Path, prefix: Path, env: Mapping[str, str], jobs: bool = True) -> int:
    """Do what a page says; AssertionError where what it shows is not what is printed. Return how many commands ran.

    Args:
        page: Path of the page, relative to the repository.
        script: The file that the page's edits are for: a copy, in a folder that commands run in.
        prefix: Stands for `/tmp/marin`.
        env: Variables of the commands.
        jobs: Whether commands of `iris` are run, too.
    """
    ran = 0
    for action in actions(page):
        if isinstance(action, Edit):
            text = script.read_text(encoding="utf-8")
            assert text.count(action.before) == 1, f"{page}: {action.before!r} stands once in {script.name}"
            script.write_text(text.replace(action.before, action.after), encoding="utf-8")
        elif jobs or "iris " not in action.text:
            done = _run(action.text, script.parents[2], prefix, env)
            said = done.stdout.replace(str(prefix), "/tmp/marin")
            assert (done.returncode != 0) == action.fails, f"{page}: {action.text}: {said}"
            missing = first_missing(action.shown, said)
            assert missing is None, f"{page}: {action.text}: {missing!r} is not in, or not in this order:\n{said}"
            ran += 1
    return ran


def _run(text: str, folder: Path, prefix: Path, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    programs = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    # Two edits of a script within a second: Python would take the bytecode of the first for that of the second.
    always = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = re.sub(r"\buv run ", "", text).replace("/tmp/marin", str(prefix))
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**env, "PATH": programs, "MARIN_PREFIX": str(prefix), **always},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )


def first_missing(shown: Collection[str], said: str) -> str | None:
    """The first line that was not said after those above it; None if all were. How long things took is free."""
    lines = iter([_comparable(line) for line in said.splitlines()])
    return next((line for line in shown if _comparable(line) not in lines), None)


def _comparable(line: str) -> str:
    """A line without what differs from run to run: how long it took, when, in which process, as which job."""
    line = re.sub(r"\d+(\.\d+)? ?s\b", "N s", line)
    line = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.+]+", "TIME", line)
    line = re.sub(r"\b(process) \d+", r"\1 N", line)
    line = re.sub(r"=== attempt (\d+), TIME, [^ ,]+,", r"=== attempt \1, TIME, HOST,", line)
    return " ".join(line.split())
