"""Runs a program that must not outlive the process which asked for it, even when that is killed.

usage: python -I -S lifeline.py DESCRIPTOR PROGRAM [ARGUMENT...]

DESCRIPTOR is the reading end of a pipe whose other end the asking process holds: when that closes, this process kills
its own process group, with the program and all that it started in it. Otherwise it ends as the program does: with its
exit code, or by its signal. Uses nothing beside the standard library and is started without the site module, to be
quick.
"""

import os
import resource
import signal
import sys
import threading

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CANNOT_START = 127


def watch(descriptor: int) -> None:
    """Kill the whole group once the pipe has closed."""
    while os.read(descriptor, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def main(descriptor: int, argv: list[str]) -> int:
    """Run the program to its end; return its exit code, or die by its signal."""
    os.set_inheritable(descriptor, False)
    for number in FORWARDED:
        # They go to the group, so the program has them already: it alone decides what they mean.
        signal.signal(number, signal.SIG_IGN)
    try:
        child = os.posix_spawnp(argv[0], argv, os.environ, setsigdef=FORWARDED)
    except OSError as error:
        print(f"cannot start {argv[0]!r}: {error.strerror}", file=sys.stderr, flush=True)
        return CANNOT_START
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
