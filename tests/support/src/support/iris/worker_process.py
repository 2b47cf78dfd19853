"""A worker as a process of its own, for tests that freeze or kill it: `python -m support.iris.worker_process ...`."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from iris.controller.config.controller_config import Address

WAIT_S: Final = 30.0


class WorkerProcess:
    """Starts the process; it finds its controller at one address for ever. A later one takes over what is left."""

    def __init__(self, work_dir: Path, worker_id: str, address: Address, token: str, cores: int = 4) -> None:
        self.worker_id = worker_id
        self.is_frozen = False
        work_dir.parent.mkdir(parents=True, exist_ok=True)
        token_file = work_dir.with_suffix(".token")
        token_file.write_text(token)
        command = [sys.executable, "-m", "support.iris.worker_process", str(work_dir), worker_id, str(address)]
        with open(work_dir.with_suffix(".log"), "ab") as log:
            self._process = subprocess.Popen(
                [*command, str(token_file), str(cores)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def freeze(self) -> None:
        """Hold it where it is."""
        self._process.send_signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    def kill(self) -> None:
        """End it at once, wherever it is."""
        self._process.kill()
        self._process.wait()

    def stop(self, timeout_s: float = WAIT_S) -> int:
        """End it in order, with its attempts; its exit code."""
        self.thaw()
        self._process.terminate()
        return self._process.wait(timeout_s)


def main() -> int:
    """Be a worker until a signal or the controller ends it."""
    from iris.domain.resources import Resources
    from iris.rpc.controller_address import ControllerAddress
    from iris.worker.app import WorkerConfig, run_worker

    parser = argparse.ArgumentParser()
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("worker_id")
    parser.add_argument("address")
    parser.add_argument("token_file", type=Path)
    parser.add_argument("cores", type=int)
    arguments = parser.parse_args()
    connection = ControllerAddress(arguments.address, arguments.token_file.read_text())
    capacity = Resources(arguments.cores * 1000, arguments.cores << 30, arguments.cores << 30)
    config = WorkerConfig(arguments.work_dir, arguments.worker_id, capacity, orphan_timeout_s=3600, stop_grace_s=1)
    return run_worker(config, lambda: connection)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
