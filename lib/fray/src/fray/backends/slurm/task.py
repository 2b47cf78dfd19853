"""One task of a gang, started by srun: run a replica and keep its exit code. Only the standard library is needed.

usage: python -I -S task.py RUN CALL ARGV...

RUN is the attempt's folder. With CALL = 1, the path for the replica's exception is added to ARGV.
"""

import os
import signal
import subprocess
import sys


def main(run: str, call: str, argv: list[str]) -> int:
    """Run the replica of this task and return its exit code."""
    # Inherited: the warning of the time limit ends nobody who does not handle it.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    replica = os.environ["SLURM_PROCID"]
    if call == "1":
        argv = [*argv, f"{run}/error.{replica}"]
    path = f"{run}/log.{replica}"
    env = {**os.environ, "FRAY_REPLICA_INDEX": replica, "FRAY_JOB_OUTPUT": path}
    with open(path, "a+b") as log:
        try:
            code = subprocess.run(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False,
            ).returncode  # fmt: skip
        except OSError as error:
            log.write(f"cannot start {argv[0]!r}: {error.strerror}: {error.filename}\n".encode())
            code = 127
    with open(f"{run}/exit.{replica}.part", "w") as file:
        file.write(str(code))
    os.rename(f"{run}/exit.{replica}.part", f"{run}/exit.{replica}")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
