"""A contender for a lease, to be run in several processes at once (importable, so that spawned ones find it)."""

import os
import time

from rigging.distributed_lock import create_lock


def compete_for_lease(path: str, directory: str, acquisitions: int) -> None:
    """Take and release the lease at `path` so many times; fail if anyone else is ever inside at the same time.

    Args:
        path: The lock file.
        directory: A local directory shared by all contenders: `journal` there gets one fencing number a line, in the
            order of the acquisitions.
        acquisitions: How many to make.
    """
    lock = create_lock(path)
    witness, journal = os.path.join(directory, "witness"), os.path.join(directory, "journal")
    done = 0
    while done < acquisitions:
        if not lock.try_acquire():
            time.sleep(0)
            continue
        # O_EXCL fails when another is inside, whatever the lease believes.
        os.close(os.open(witness, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        with open(journal, "a") as handle:
            handle.write(f"{lock.fencing_token}\n")
        os.unlink(witness)
        if not lock.release():
            raise AssertionError(f"{path}: the lease was gone before its release")
        done += 1
