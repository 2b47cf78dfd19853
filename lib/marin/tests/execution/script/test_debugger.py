"""Breakpoints of an editor in steps: debugpy, which VS Code uses, in a script whose steps run in threads."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

pytestmark = pytest.mark.process

SECONDS = 60.0
SCRIPT = """
from dataclasses import dataclass

import debugpy

from marin.execution import ExecutorStep, executor_main, output_path_of, this_output_path, versioned


@dataclass(frozen=True)
class Config:
    n: int
    path: str


def double(config: Config) -> int:
    result = 2 * config.n
    return result  # here


first = ExecutorStep(name="first", fn=double, config=Config(versioned(4), this_output_path()))
second = ExecutorStep(name="second", fn=double, config=Config(versioned(5), output_path_of(first)))

if __name__ == "__main__":
    # An editor starts the program with the debugger; here the imports above are not traced, which takes seconds.
    _, port = debugpy.listen(("127.0.0.1", 0))
    print(port, flush=True)
    debugpy.wait_for_client()
    executor_main(steps=[second])
"""
LINE = next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith("# here"))


class DebugClient:
    """Talks to debugpy's adapter. Requests are not waited for; `event` and `answer` read what comes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader: BinaryIO = connection.makefile("rb")
        self._number = 0

    def request(self, command: str, **arguments: Any) -> int:
        self._number += 1
        message = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(message).encode()
        self._connection.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return self._number

    def event(self, name: str) -> dict[str, Any]:
        found = self._read_until(lambda message: message["type"] == "event" and message["event"] == name)
        return dict(found.get("body") or {})

    def answer(self, number: int) -> dict[str, Any]:
        found = self._read_until(lambda message: message.get("request_seq") == number)
        assert found["success"], found
        return dict(found.get("body") or {})

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.answer(self.request(command, **arguments))

    def _read_until(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            length = 0
            while line := self._reader.readline().strip():
                length = int(line.split(b":")[1])
            assert length, "the debugger has gone"
            message: dict[str, Any] = json.loads(self._reader.read(length))
            if is_it(message):
                return message


def test_a_breakpoint_in_a_step_is_hit(tmp_path: Path) -> None:
    script = tmp_path / "experiment.py"
    script.write_text(SCRIPT)
    words = [sys.executable, "-Xfrozen_modules=off", str(script), "--prefix", str(tmp_path / "prefix")]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(words, env={**os.environ, "CI": "1"}, **pipes) as process:
        try:
            seen = stops(int(process.stdout.readline()), script)
            out, _ = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, out
    assert seen == [("double", LINE, "8"), ("double", LINE, "10")]


def stops(port: int, script: Path) -> list[tuple[str, int, str]]:
    """Return the function, the line and the value of `result` wherever the program stops."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        client = DebugClient(connection)
        client.ask("initialize", adapterID="test", clientID="test", linesStartAt1=True, columnsStartAt1=True)
        attached = client.request("attach", justMyCode=True)
        client.event("initialized")
        line = {"line": LINE}
        [known] = client.ask("setBreakpoints", source={"path": str(script)}, breakpoints=[line])["breakpoints"]
        assert known["verified"]
        client.ask("configurationDone")
        client.answer(attached)
        seen = []
        for _ in range(2):
            stopped = client.event("stopped")
            assert stopped["reason"] == "breakpoint"
            frame = client.ask("stackTrace", threadId=stopped["threadId"])["stackFrames"][0]
            value = client.ask("evaluate", expression="result", frameId=frame["id"])["result"]
            seen.append((frame["name"], frame["line"], value))
            client.ask("continue", threadId=stopped["threadId"])
        client.event("terminated")
        return seen
