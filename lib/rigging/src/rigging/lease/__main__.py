"""Show a lease, or take it from its holder: `python -m rigging.lease show|take LOCK_FILE`."""

import argparse
import sys
from collections.abc import Sequence

from rigging.errors import MarinError
from rigging.lease.base import LeaseStore
from rigging.lease.holding import store_of
from rigging.lease.identity import HolderState, holder_state, process_of
from rigging.lease.record import Lease, StoredLease
from rigging.text.printable import printable

_REFUSED_EXIT_CODE = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, or 3 for a refusal."""
    parser = argparse.ArgumentParser(prog="python -m rigging.lease", description=__doc__)
    parser.add_argument("action", choices=["show", "take"], help="show who holds the lease, or take it from the holder")
    parser.add_argument("lock_file", help="path or URL of the lock file, as shown in messages")
    parser.add_argument("--force", action="store_true", help="take it even if the holder may still be running")
    options = parser.parse_args(arguments)
    try:
        store = store_of(options.lock_file)
        if options.action == "show":
            line = describe(store.read())
        else:
            line = take(store, force=options.force)
    except (MarinError, OSError) as error:
        print(printable(f"lease {options.lock_file}: {error}"), file=sys.stderr)
        return _REFUSED_EXIT_CODE
    print(printable(f"lease {options.lock_file}: {line}"))
    return 0


def describe(stored: StoredLease | None) -> str:
    """Describe the holder of a lease, as far as this machine can tell."""
    if stored is None:
        return "nobody holds it"
    lease = Lease.from_bytes(stored.content)
    if lease is None:
        return "its lock file is unreadable, so anybody may take it"
    state = holder_state(lease.worker_id)
    where = {
        HolderState.ALIVE: f"process {process_of(lease.worker_id)} of this machine, which is running",
        HolderState.STOPPED: f"process {process_of(lease.worker_id)} of this machine, which is stopped",
        HolderState.GONE: "a process that has ended: anybody may take it",
        HolderState.UNKNOWN: "a process that is not visible from this machine",
    }[state]
    return f"held by {lease.worker_id}, {where}"


def take(store: LeaseStore, *, force: bool) -> str:
    """Remove a lease, so that the next caller gets it. Its holder's later reports are refused.

    Raises:
        MarinError: The holder may still run, and `force` is off. Nothing is changed.
    """
    with store.exclusive(create=False) as present:
        stored = store.read() if present else None
        lease = None if stored is None else Lease.from_bytes(stored.content)
        state = HolderState.GONE if lease is None else holder_state(lease.worker_id)
        if state in (HolderState.ALIVE, HolderState.UNKNOWN) and not force:
            raise MarinError(f"{describe(stored)}; end it first, or use --force if it cannot be running any more")
        was = describe(stored)
        if stored is not None and not store.delete(stored):
            raise MarinError("it changed meanwhile: its holder is running; run `show` again")
    if stored is None:
        return was
    is_stopped = state is HolderState.STOPPED
    return f"free now (it was {was})" + ("; end that process: it may keep writing for up to 30 s" if is_stopped else "")


if __name__ == "__main__":
    sys.exit(main())
