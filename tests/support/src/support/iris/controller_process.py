"""A controller in a separate process, for tests that kill it: `python -m support.iris.controller_process ...`."""

import argparse
import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from iris.controller.config.controller_config import Address, ControllerConfig, Durability
from iris.store.replicate.replicator import Pace
from iris.tls.certificates import ensure_certificates
from rigging.errors import MarinError

_LEASE_TIMEOUT_S: Final = 2.0


# Below what systems give to outgoing connections: while a controller is down no other process gets its port.
_PORTS: Final = range(20_000, 30_000)


def fixed_port() -> int:
    """Return a free port that stays reserved while its controller restarts."""
    chance = random.SystemRandom()
    while True:
        port = chance.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class ControllerProcess:
    """A controller process, started and answering. `kill` sends SIGKILL."""

    def __init__(
        self,
        state_dir: Path,
        port: int = 0,
        remote_state_dir: str = "",
        durability: str = "remote",
        *,
        tls: bool = False,
    ) -> None:
        port = port or fixed_port()
        command = [
            *(sys.executable, "-m", "support.iris.controller_process"),
            *(str(state_dir), str(port), remote_state_dir, durability if remote_state_dir else "local"),
            *(("--tls",) if tls else ()),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line.isdigit():
            self._process.wait()
            raise MarinError(f"the controller did not start: {line or 'it said nothing'}")
        self.address = Address("127.0.0.1", int(line))

    @property
    def pid(self) -> int:
        return self._process.pid

    def pause(self) -> None:
        """Pause the process, like an overloaded machine."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end, and return its exit code."""
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """Kill the process."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def main() -> None:
    """Serve until the end. Print the port, or the error, to stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("state_dir", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("remote_state_dir")
    parser.add_argument("durability", type=Durability)
    parser.add_argument("--tls", action="store_true")
    arguments = parser.parse_args()
    config = ControllerConfig(
        tls=ensure_certificates(arguments.state_dir) if arguments.tls else None,
        state_dir=arguments.state_dir,
        port=arguments.port,
        remote_state_dir=arguments.remote_state_dir,
        durability=arguments.durability,
        pace=Pace(lease_timeout_s=_LEASE_TIMEOUT_S),
    )
    from iris.controller.app import serve

    try:
        asyncio.run(serve(config, lambda address: print(address.port, flush=True)))
    except MarinError as error:
        print(str(error), flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
