"""A fake `ray` program for tests, which records its calls."""

import json
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

# Ray's own words come before what a command prints, and a command that fails is always 1, as with the real one.
_PROGRAM = """#!{python} -IS
import os, json, shutil, socket, subprocess, sys, threading
home, words = {home!r}, sys.argv[1:]
with open(home + "/calls", "a") as calls:
    calls.write(json.dumps([words, os.environ.get("RAY_UP_enable_autoscaler_v2")]) + "\\n")
state = json.load(open(home + "/state.json"))
if words[0] == "exec":
    print("Fetched IP: 10.0.0.1", flush=True)
    if not state["running"]:
        sys.exit("Error: Head node of cluster not found!")
    done = subprocess.run(["bash", "-c", words[2]], env={{**os.environ, "HOME": home + "/head"}}).returncode
    sys.stdout.write("Shared connection to 10.0.0.1 closed.\\n")
    sys.exit(1 if done else 0)
if words[0] == "dashboard":
    server = socket.create_server(("127.0.0.1", int(words[words.index("--port") + 1])))
    with open(home + "/tunnels", "a") as tunnels:
        tunnels.write(str(os.getpid()) + "\\n")
    def pump(a, b):
        while data := a.recv(65536):
            b.sendall(data)
        b.close()
    while True:
        near, _ = server.accept()
        far = socket.create_connection(("127.0.0.1", state["jobs_port"]))
        for pair in ((near, far), (far, near)):
            threading.Thread(target=pump, args=pair, daemon=True).start()
if words[0] == "rsync-down":
    shutil.copytree(home + "/head" + words[2], words[3], dirs_exist_ok=True)
if words[0] in ("up", "down"):
    state["running"] = words[0] == "up"
    json.dump(state, open(home + "/state.json", "w"))
sys.exit(state["codes"].get(words[0], 0))
"""


@dataclass
class FakeRay:
    """The fake `ray` program, and its pretended cluster."""

    home: Path

    @property
    def head(self) -> Path:
        """The home directory on the cluster's head."""
        return self.home / "head"

    def write_program(self) -> Path:
        program = self.home / "ray"
        program.write_text(_PROGRAM.format(python=sys.executable, home=str(self.home)))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    def calls(self) -> list[list[str]]:
        return [words for words, _ in self._notes()]

    def v2(self) -> list[str | None]:
        """Return the value of RAY_UP_enable_autoscaler_v2 in every call."""
        return [flag for _, flag in self._notes()]

    def set(self, **values: object) -> None:
        """Configure the program: `running`, `codes` (exit code of a command), `jobs_port`."""
        file = self.home / "state.json"
        state = json.loads(file.read_text()) if file.exists() else {"running": True, "codes": {}, "jobs_port": 0}
        file.write_text(json.dumps({**state, **values}))

    def tunnels(self) -> list[int]:
        notes = self.home / "tunnels"
        return [int(line) for line in notes.read_text().split()] if notes.exists() else []

    def _notes(self) -> list[tuple[list[str], str | None]]:
        notes = self.home / "calls"
        return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
