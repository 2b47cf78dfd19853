"""The files without names that programs of jobs write to."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fray.backends.common.processes import OutputFile, ProcessTree


def say(output: OutputFile, *words: str) -> None:
    assert ProcessTree.start(["sh", "-c", 'echo "$@"', "sh", *words], dict(os.environ), None, output).wait() == 0


def test_it_is_read_while_it_grows() -> None:
    output = OutputFile()
    assert (output.size(), output.read(), output.tail(1)) == (0, "", "")
    say(output, "one")
    assert output.read_from(0) == b"one\n"
    say(output, "two")
    assert (output.size(), output.read_from(4), output.tail(1)) == (8, b"two\n", "two")
    assert output.read() == "one\ntwo\n"


def test_all_that_write_append() -> None:
    output = OutputFile()
    # A fork of one's own, a program that forks, and a program that opens its stdout anew all have positions.
    first, second = output.open(), output.open()
    os.write(first, b"1\n")
    os.write(second, b"2\n")
    os.lseek(first, 0, os.SEEK_SET)
    say(output, "3")
    os.write(first, b"4\n")
    command = ["sh", "-c", "echo 5; (echo 6) & wait; echo 7 >> /dev/stdout"]
    assert ProcessTree.start(command, dict(os.environ), None, output).wait() == 0
    if (child := os.fork()) == 0:
        os.write(second, b"8\n")
        os._exit(0)
    os.waitpid(child, 0)
    for descriptor in (first, second):
        os.close(descriptor)
    assert output.read().split() == list("12345678")


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_it_reads_the_same_when_it_is_settled(size: int) -> None:
    output = OutputFile()
    descriptor = output.open()
    os.write(descriptor, b"x" * size + b"\nlast\n")
    os.close(descriptor)
    before = (output.size(), output.read(), output.tail(1), output.read_from(size))
    output.settle()
    assert (output.size(), output.read(), output.tail(1), output.read_from(size)) == before
    assert before[2:] == ("last", b"\nlast\n")


def descriptors_below(directory: Path) -> list[str]:
    """Files that this process has open there; those elsewhere change when remains of other tests are collected."""
    targets = []
    for descriptor in os.listdir("/dev/fd"):
        with contextlib.suppress(FileNotFoundError):
            targets.append(os.readlink(f"/dev/fd/{descriptor}"))
    return [target for target in targets if target.startswith(f"{directory}/")]


def test_neither_waiting_nor_small_settled_ones_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    outputs = [OutputFile() for _ in range(20)]
    assert descriptors_below(tmp_path) == []
    for output in outputs[:10]:
        say(output, "hello")
    assert len(descriptors_below(tmp_path)) == 10
    for output in outputs[:10]:
        output.settle()
    assert descriptors_below(tmp_path) == []
    assert outputs[0].read() == "hello\n"


@pytest.mark.process
def test_nothing_is_left_when_the_process_is_killed(tmp_path: Path) -> None:
    script = """
import os, sys, threading
from fray.backends.common.processes import OutputFile, ProcessTree

output = OutputFile()
ProcessTree.start(["sh", "-c", "echo hello; exec sleep 300"], dict(os.environ), None, output, with_lifeline=True)
while not output.size():
    pass
print(output.read(), flush=True)
threading.Event().wait()
"""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hello\n"
        process.kill()
    assert list(tmp_path.iterdir()) == []
