import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from iris.worker.reports.result_file import INLINE_BYTES, MOST_BYTES, problem, read_small, remove, send_large
from iris.worker.types import NO_RESULT, TaskResult
from rigging.errors import BudgetExceeded, MarinError, Unavailable


class Controller:
    """Takes blobs, after it has failed with each of some errors."""

    def __init__(self, *errors: MarinError) -> None:
        self.errors = list(errors)
        self.blobs: dict[str, bytes] = {}

    async def take(self, digest: str, data: bytes) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.blobs[digest] = data


def send(path: Path, controller: Controller | None, patience_s: float = 30.0) -> TaskResult:
    return asyncio.run(send_large(str(path), None if controller is None else controller.take, patience_s))


def test_a_small_value_is_told_as_it_is_and_a_larger_one_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "value"
    assert read_small(str(file)) == NO_RESULT, "none was left: it returned None"
    file.write_bytes(b"x" * INLINE_BYTES)
    assert read_small(str(file)) == TaskResult(b"x" * INLINE_BYTES)
    file.write_bytes(b"x" * (INLINE_BYTES + 1))
    assert read_small(str(file)) is None
    remove(str(file))
    remove(str(file))
    assert not file.exists()


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_what_is_no_file_is_neither_followed_nor_waited_for(tmp_path: Path, kind: str) -> None:
    """The task may leave there what it likes, and the worker serves others meanwhile."""
    place = tmp_path / "value"
    make = {"folder": place.mkdir, "pipe": lambda: os.mkfifo(place), "link": lambda: place.symlink_to(__file__)}
    make[kind]()
    for found in (read_small(str(place)), send(place, Controller())):
        assert found is not None
        assert found.packed.startswith(b"! its worker cannot read it")


def test_a_large_value_is_sent_once_the_controller_is_back(tmp_path: Path) -> None:
    file, data = tmp_path / "value", b"y" * 100_000
    file.write_bytes(data)
    controller = Controller(Unavailable("it restarts"), Unavailable("it restarts"))
    digest = hashlib.sha256(data).hexdigest()
    assert send(file, controller) == TaskResult(digest=digest)
    assert controller.blobs == {digest: data}


@pytest.mark.parametrize(
    ("controller", "patience_s", "reason"),
    [
        (Controller(BudgetExceeded("no room")), 30.0, b"! its worker could not send it: no room\n"),
        (Controller(*[Unavailable("away")] * 9), 0.0, b"! its worker could not send it for 0 s"),
        (None, 30.0, b"! its worker cannot send large values\n"),
    ],
)
def test_one_that_is_not_sent(tmp_path: Path, controller: Controller | None, patience_s: float, reason: bytes) -> None:
    (tmp_path / "value").write_bytes(b"y" * 100_000)
    assert send(tmp_path / "value", controller, patience_s).packed.startswith(reason)


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    """A task may write what it likes there, and the controller is to be sent no more than it takes."""
    with (tmp_path / "value").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    controller = Controller()
    assert b"larger than" in send(tmp_path / "value", controller).packed
    assert not controller.blobs


def test_a_reason_fits_a_message() -> None:
    assert len(problem("x" * 100_000).packed) <= INLINE_BYTES
