"""Run a program that must not outlive the process that started this one, even if that process is killed.

usage: python -I -S lifeline.py DESCRIPTOR PROGRAM [ARGUMENT...]

DESCRIPTOR is the read end of a pipe. The parent holds the write end. When the pipe closes, this process kills its own
process group, including the program and its children. Otherwise it ends like the program: with the same exit code or
signal. It imports only the standard library and starts without the site module, to be fast.
"""

import os
import resource
import signal
import sys
import threading

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CANNOT_START = 127


def watch(descriptor: int) -> None:
    """Kill the whole process group once the pipe closes."""
    while os.read(descriptor, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main(descriptor: int, argv: list[str]) -> int:
    """Run the program. Return its exit code, or die by its signal."""
    os.set_inheritable(descriptor, False)
    for number in FORWARDED:
        # They go to the group, so the program has them already: it alone decides what they mean.
        signal.signal(number, signal.SIG_IGN)
    try:
        child = os.posix_spawnp(argv[0], argv, os.environ, setsigdef=FORWARDED)
    except OSError as error:
        print(f"cannot start {argv[0]!r}: {error.strerror}", file=sys.stderr, flush=True)
        return CANNOT_START
    return keep(child, descriptor)


def keep(child: int, descriptor: int) -> int:
    """Wait for a child, killing this process's group if the pipe closes. Return its exit code, or die by its signal."""
    threading.Thread(target=watch, args=(descriptor,), daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if -code in FORWARDED:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), sys.argv[2:]))
