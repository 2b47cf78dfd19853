"""Each step's `.log` and `.error` are whole on every backend, although runs and workers are killed: each line once.

The seed is printed; MARIN_STORM_SEED repeats it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fray.testing.ray_harness import RayCluster
from marin.execution.log.sections import LOST

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).with_name("whole_logs_pipeline.py")
SAID = re.compile(r"(?:.*: )?(out|err|log|sub) ([0-9a-f]{8}) (\d+)")
# Headings and ends, how an attempt failed, what runs and clusters say of their own.
OTHER = re.compile(r"=== |iris: |step at |Traceback|Stack \(most recent|  |\d{4}-|\(\d+ frames|.*LookupError: no luck")
LONG = 240.0


@dataclass
class Place:
    """Where runs of the pipeline are, and what they run on."""

    root: Path
    client: str
    environment: dict[str, str]

    def start(self, steps: int, lines: int, seed: int) -> subprocess.Popen[bytes]:
        self.said.mkdir(exist_ok=True)
        words = [str(SCRIPT), str(self.root / "p"), str(self.root), *map(str, (steps, lines, seed))]
        environment = {**os.environ, **self.environment, "FRAY_CLIENT": self.client}
        workspace = self.root / "workspace"
        if not workspace.exists():
            subprocess.run(["git", "init", "--quiet", str(workspace)], check=True)
        with open(self.root / "output", "ab") as log:
            return subprocess.Popen([sys.executable, *words], env=environment, stdout=log, stderr=log, cwd=workspace)

    @property
    def said(self) -> Path:
        return self.root / "said"

    def count_said(self) -> int:
        return sum(path.stat().st_size for path in self.said.iterdir() if path.suffix != ".lock")

    def run_with_kills(self, steps: int, lines: int, kills: int, seed: int, seconds: float) -> None:
        """Run the pipeline to its end, with so many kills of the run's process while steps print."""
        dice = random.Random(seed)
        deadline = time.monotonic() + seconds
        for left in range(kills, -1, -1):
            process = self.start(steps, lines, seed)
            try:
                enough = self.count_said() + dice.randrange(200, 2000)
                while process.poll() is None and (not left or self.count_said() < enough):
                    assert time.monotonic() < deadline, self.end_of_output()
                    time.sleep(0.02)
                if process.poll() is not None:
                    break
            finally:
                process.kill()
                process.wait()
                for path in self.said.glob("*[0-9]"):
                    with open(path, "a") as file:
                        file.write("killed run\n")
        assert process.returncode == 0, self.end_of_output()

    def end_of_output(self) -> str:
        return (self.root / "output").read_text()[-6000:]

    def findings(self, steps: int, streams: int) -> list[str]:
        """Everything that is wrong with the logs."""
        trouble = self.root / "trouble"
        found = [trouble.read_text()] if trouble.exists() else []
        for number in range(steps):
            [directory] = (self.root / "p" / "talk").glob(f"s{number}-*")
            found += [f"{directory}: {each}" for each in wrong_with(directory, self.said / str(number), streams)]
        return found


def wrong_with(directory: Path, said: Path, streams: int) -> Iterator[str]:
    """Everything that is wrong with one step's files."""
    notes = [line.split(" ") for line in said.read_text().splitlines()]
    # A process that the kill of its run ended, too, may have noted a failure that it came not to.
    uncertain = {words[1] for words, after in itertools.pairwise(notes) if after[0] == "killed"}
    tokens = [words[1] for words in notes if words[0] == "begin"]
    log = (directory / ".log").read_text()
    in_log: dict[tuple[str, str], list[int]] = {}
    order: list[str] = []
    parts_with_loss = sum(line == LOST for line in log.splitlines())
    for line in log.splitlines():
        match = SAID.fullmatch(line)
        if match is None:
            if OTHER.match(line) is None:
                yield f"a line that nobody printed: {line!r}"
            continue
        stream, token, number = match.groups()
        in_log.setdefault((token, stream), []).append(int(number))
        if token not in order:
            order.append(token)
        elif order[-1] != token:
            yield f"lines of {token} come after those of a later attempt"
    if order != [token for token in tokens if token in order]:
        yield f"attempts are not in their order: {order}, {tokens}"
    short = set()
    for token in tokens:
        expected: dict[str, int] = {}
        for words in notes:
            if words[1] == token and words[0] not in ("begin", "fail"):
                expected[words[0]] = expected.get(words[0], 0) + 1
        for stream, count in expected.items():
            numbers = in_log.get((token, stream), [])
            if numbers != list(range(len(numbers))):
                yield f"{stream} of {token}: {numbers}"
            if len(numbers) < count:
                short.add(token)
    if len(short) > parts_with_loss:
        yield f"lines of {short} are missing, without a word"
    last = {stream for token, stream in in_log if token == tokens[-1]}
    if len(last) != streams:
        yield f"of the last attempt there is only {last}"
    error = (directory / ".error").read_text() if (directory / ".error").exists() else ""
    for words in notes:
        told = error.count(f"LookupError: no luck for {words[1]}")
        if words[0] == "fail" and told != 1 and not (told == 0 and words[1] in uncertain):
            yield f".error does not tell once of {words[1]}"


@dataclass(frozen=True)
class Backend:
    """What runs go on, and how many streams of a step are in its log."""

    client: str
    streams: int
    environment: dict[str, str]


@contextlib.contextmanager
def ray_backend(_root: Path) -> Iterator[Backend]:
    with RayCluster(cpus=32).running():
        yield Backend("ray", 4, {})


@contextlib.contextmanager
def iris_backend(root: Path) -> Iterator[Backend]:
    environment = {"IRIS_STATE_DIR": str(root)}
    try:
        yield Backend("iris", 4, environment)
    finally:
        stop = [str(Path(sys.executable).with_name("iris")), "cluster", "stop", "--force"]
        subprocess.run(stop, env={**os.environ, **environment}, capture_output=True, timeout=60, check=False)


BACKENDS = {
    "in-process": lambda _: contextlib.nullcontext(Backend("local", 3, {})),
    "processes": lambda _: contextlib.nullcontext(Backend("local://?processes=1", 4, {})),
    "iris": iris_backend,
    "ray": ray_backend,
}


@pytest.fixture(
    scope="module",
    params=["in-process", "processes", "iris", pytest.param("ray", marks=[pytest.mark.soak, pytest.mark.ray])],
)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Each backend in turn, with a cluster of its own where it has one."""
    with BACKENDS[request.param](tmp_path_factory.mktemp("cluster")) as made:
        yield made


def seed_of_test() -> int:
    seed = int(os.environ.get("MARIN_STORM_SEED") or secrets.randbits(32))
    print(f"seed {seed}")
    return seed


LARGE = pytest.param(200, 10, 4, 850, marks=[pytest.mark.soak, pytest.mark.timeout(900)])


@pytest.mark.parametrize(("steps", "lines", "kills", "seconds"), [(20, 5, 1, LONG), LARGE])
def test_logs_are_whole_although_run_and_workers_are_killed(
    backend: Backend, tmp_path: Path, steps: int, lines: int, kills: int, seconds: float
) -> None:
    place = Place(tmp_path, backend.client, backend.environment)
    place.run_with_kills(steps, lines, kills, seed_of_test(), seconds)
    assert place.findings(steps, backend.streams) == []
