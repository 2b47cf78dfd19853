"""A user's machine and a head, simulated by two home directories, with a fake ssh between them."""

import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Final

import yaml

# What follows the host is for the shell there; -L HERE:localhost:THERE leads to the one port that the head is to have.
_SSH: Final = """#!{python}
import os, socket, subprocess, sys, threading
words = sys.argv[1:]
def pump(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
def forward(server):
    while True:
        near, _ = server.accept()
        far = socket.create_connection(("127.0.0.1", {port}))
        for pair in ((near, far), (far, near)):
            threading.Thread(target=pump, args=pair, daemon=True).start()
for option, ports in zip(words, words[1:]):
    if option == "-L":
        server = socket.create_server(("127.0.0.1", int(ports.partition(":")[0])))
        threading.Thread(target=forward, args=(server,), daemon=True).start()
host = next(index for index, word in enumerate(words) if "@" in word)
own = ("RAY_ADDRESS", "TMPDIR")
environ = {{name: value for name, value in os.environ.items() if name not in own}} | {{"HOME": {head!r}}}
command = " ".join(words[host + 1 :])
sys.exit(subprocess.run(["bash", "-c", command], cwd={head!r}, env=environ).returncode)
"""
_RSYNC: Final = """#!/bin/bash
there() {{ case $1 in *@*:*) echo "{head}/$(echo "${{1#*:}}" | sed 's|^~/||')" ;; *) echo "$1" ;; esac; }}
exec cp -rT "$(there "${{@: -2:1}}")" "$(there "${{@: -1}}")"
"""


class SshMachine:
    """A user's machine with the file of a cluster whose only node is a directory beside it. `ray` is real."""

    def __init__(self, folder: Path, dashboard_port: int = 0) -> None:
        self.head, self.home, programs = folder / "head", folder / "home", folder / "bin"
        for each in (self.head, self.home, programs):
            each.mkdir()
        for name, text in (("ssh", _SSH), ("rsync", _RSYNC)):
            (programs / name).write_text(text.format(head=str(self.head), port=dashboard_port, python=sys.executable))
            (programs / name).chmod(0o755)
        (self.head / ".bashrc").write_text("")
        (folder / "key").write_text("")
        self.file = folder / "cluster.yaml"
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        self.write()
        self.environment = {
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
            "HOME": str(self.home),
            "RAY_USAGE_STATS_ENABLED": "0",
            "TMPDIR": str(folder),
        }

    def write(self, **changed: object) -> None:
        """Write the cluster's file with these keys."""
        config = {
            "cluster_name": self.name,
            "provider": {"type": "local", "head_ip": "127.0.0.1", "worker_ips": []},
            "auth": {"ssh_user": "me", "ssh_private_key": str(self.file.parent / "key")},
            "head_start_ray_commands": ["echo started >> ~/starts; : ulimit -n ray start --autoscaling-config"],
            "worker_start_ray_commands": [],
        }
        self.file.write_text(yaml.safe_dump({**config, **changed}))

    def command(self, *words: str) -> list[str]:
        """Return the words of `python -m marin.run.cluster`."""
        return [sys.executable, "-m", "marin.run.cluster", words[0], "--cluster", str(self.file), *words[1:]]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), env=self.environment, capture_output=True, text=True, timeout=200, cwd=self.home
        )

    def forget(self) -> None:
        """Remove Ray's records of `local` clusters outside of home directories."""
        for left in Path("/tmp/ray").glob(f"cluster-{self.name}*"):
            left.unlink()
