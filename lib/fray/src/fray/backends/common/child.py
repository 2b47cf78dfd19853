"""The process that runs a callable for a backend that starts it on a machine with the client's files.

usage: python -m fray.backends.common.child PAYLOAD RESULT

PAYLOAD is a file with the pickled import path and the pickled (callable, args, kwargs). If the callable raises, RESULT
receives the packed exception; if it returns, RESULT.value receives the packed value. Exit code: 0 if it returned, 1 if
it raised, otherwise the argument of sys.exit. Code 0 without RESULT.value means that the process ended early.
"""

import os
import pickle
import sys
from collections.abc import Sequence

from fray.context import close_shared_clients
from fray.sending.remote_errors import pack_error
from rigging.process.calls import call_to_end, exit_status
from rigging.results import LARGEST_BYTES, NOT_RETURNED, pack_problem, pack_result

VALUE = ".value"
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "GCONV_")
"""Prefixes of variables that an interpreter, its C library and its loader read once, when they start."""


def write_payload(path: str, call: bytes, import_path: Sequence[str]) -> None:
    """Write the input of `main`.

    Args:
        path: The file.
        call: The pickled callable with its arguments.
        import_path: The submitter's import path.
    """
    with open(path, "wb") as file:
        pickle.dump((list(import_path), call), file)


def main(payload: str, result: str) -> int:
    """Run the callable and return the process's exit code."""
    try:
        with open(payload, "rb") as file:
            import_path, call = pickle.load(file)  # noqa: S301 - written by the client that started this process
        # The workspace comes first, as with `python -m`; then what the submitter could import.
        sys.path.insert(0, os.getcwd())
        sys.path.extend(path for path in import_path if path not in sys.path)
        fn, args, kwargs = pickle.loads(call)  # noqa: S301 - as above
        value = call_to_end(fn, *args, **kwargs)
        # A file here is as good as one in the temporary prefix.
        _write_whole(f"{result}{VALUE}", pack_result(value, inline_bytes=LARGEST_BYTES))
    except SystemExit as error:
        close_shared_clients(wait=False)
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        code = exit_status(error.code)
        if code == 0:
            _write_whole(f"{result}{VALUE}", pack_problem(NOT_RETURNED))
        return code
    except BaseException as error:  # whatever it is, it is raised where the job is waited for
        # Before its file is made: packing runs the user's code, which may end this process.
        _write_whole(result, pack_error(error))
        sys.excepthook(type(error), error, error.__traceback__)
        close_shared_clients(wait=False)
        return 1
    close_shared_clients(wait=True)
    return 0


def _write_whole(path: str, data: bytes) -> None:
    """Write a file atomically."""
    with open(f"{path}.part", "wb") as file:
        file.write(data)
    os.replace(f"{path}.part", path)


if __name__ == "__main__":
    # As an importable module, not __main__, so that what is pickled from here can be found again.
    from fray.backends.common import child

    sys.exit(child.main(sys.argv[1], sys.argv[2]))
