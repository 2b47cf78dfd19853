"""The process of a callable that the local backend runs apart (`LocalClient(processes=True)`).

usage: python -m fray.backends.local.child PAYLOAD RESULT

PAYLOAD is a file with the pickled import path and the pickled (callable, args, kwargs); into RESULT goes the packed
exception when it raises one. Exit code: 0 when it returned, 1 when it raised, what it gave to sys.exit otherwise.
"""

import os
import pickle
import sys
from collections.abc import Sequence

from fray.context import close_shared_clients
from fray.remote_errors import pack_error
from rigging.calls import call_to_end, exit_status


def write_payload(path: str, call: bytes, import_path: Sequence[str]) -> None:
    """Write what `main` reads.

    Args:
        path: The file.
        call: The pickled callable with its arguments.
        import_path: Where the submitter imports from.
    """
    with open(path, "wb") as file:
        pickle.dump((list(import_path), call), file)


def main(payload: str, result: str) -> int:
    """Run the callable; return the process's exit code."""
    try:
        with open(payload, "rb") as file:
            import_path, call = pickle.load(file)  # noqa: S301 - written by the client that started this process
        # The workspace comes first, as with `python -m`; then what the submitter could import.
        sys.path.insert(0, os.getcwd())
        sys.path.extend(path for path in import_path if path not in sys.path)
        fn, args, kwargs = pickle.loads(call)  # noqa: S301 - as above
        call_to_end(fn, *args, **kwargs)
    except SystemExit as error:
        close_shared_clients(wait=False)
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return exit_status(error.code)
    except BaseException as error:  # whatever it is, it is raised where the job is waited for
        # Whole or not at all: packing runs the user's code, which may end this process.
        packed = pack_error(error)
        with open(f"{result}.part", "wb") as file:
            file.write(packed)
        os.replace(f"{result}.part", result)
        sys.excepthook(type(error), error, error.__traceback__)
        close_shared_clients(wait=False)
        return 1
    close_shared_clients(wait=True)
    return 0


if __name__ == "__main__":
    # As an importable module, not __main__, so that what is pickled from here can be found again.
    from fray.backends.local import child

    sys.exit(child.main(sys.argv[1], sys.argv[2]))
