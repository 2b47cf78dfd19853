"""Machines of the test server that run: each has processes, in which its startup script begins, and a serial port."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from support.google.cloud import Machine
from support.google.server import GoogleServer


def startup_script(machine: Machine, home: Path) -> Sequence[str]:
    """Return the command that runs the startup script that the machine was created with."""
    script = home / "startup-script"
    script.write_text(machine.attributes.get("startup-script", ""))
    return ["bash", str(script)]


def alone(machine: Machine, home: Path) -> Sequence[str]:
    """Return the startup script's command with processes of its own, which end together, like those of a machine."""
    own = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if os.geteuid() == 0 else []
    return ["env", f"IRIS_BOOT_DIR={home}/iris", *own, *startup_script(machine, home)]


class RunningMachines:
    """Runs the machines of a server while they are up; a context manager, within the server's.

    Args:
        root: Each machine has a home there: NAME-NUMBER, which is $HOME.
        command: Returns the command line of a machine's first process, and may choose another host for it.
        environment: Further variables; $GCE_METADATA_HOST is there.
    """

    def __init__(
        self,
        server: GoogleServer,
        root: Path,
        command: Callable[[Machine, Path], Sequence[str]] = startup_script,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._server, self._root, self._command = server, root, command
        self._environment = environment or {}
        self.processes: dict[Machine, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._server.on_boot, self._server.on_stop = self.boot, self.stop
        return self

    def __exit__(self, *_: object) -> None:
        for machine in list(self.processes):
            self.stop(machine)

    def boot(self, machine: Machine) -> None:
        """Start the first process of a machine."""
        home = self._root / f"{machine.name}-{machine.number}"
        home.mkdir(parents=True, exist_ok=True)
        machine.serial_file = home / "serial"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("IRIS_", "XDG_"))}
        address = {"HOME": str(home), "GCE_METADATA_HOST": machine.metadata.address}
        with open(machine.serial_file, "ab") as output:
            self.processes[machine] = subprocess.Popen(
                self._command(machine, home),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**kept, **address, **self._environment},
                cwd=home,
                start_new_session=True,
            )

    def stop(self, machine: Machine) -> None:
        """Kill the processes of a machine, like a power failure."""
        process = self.processes.pop(machine, None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
