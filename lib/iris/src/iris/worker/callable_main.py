"""Runs one pickled call in the task's own interpreter: `python -P callable_main.py PAYLOAD`.

A script of its own, because it runs in the job's environment, where iris need not exist: it needs the standard
library and cloudpickle, and takes the cloudpickle beside the worker (IRIS_CLOUDPICKLE) where the environment has none.
"""

import os
import sys
import traceback

_ERROR_BYTES = 8192
_FRAMES = 3


def ensure_cloudpickle(fallback: str) -> None:
    """Make `import cloudpickle` work, from the package directory `fallback` if need be."""
    import importlib.util

    if importlib.util.find_spec("cloudpickle") is not None or not fallback:
        return
    spec = importlib.util.spec_from_file_location(
        "cloudpickle", os.path.join(fallback, "__init__.py"), submodule_search_locations=[fallback]
    )
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["cloudpickle"] = module
    spec.loader.exec_module(module)


def describe(error: BaseException) -> str:
    """One line "Type: message" and the innermost frames: what `iris job run` shows of a failure."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    lines = [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in frames]
    head = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join([head, *lines])


def write_error(text: str) -> None:
    """Leave `text` for the worker, which reports it as the attempt's error."""
    path = os.environ.get("IRIS_ERROR_FILE")
    if not path:
        return
    try:
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text[:_ERROR_BYTES])
    except OSError as error:
        print(f"cannot write {path}: {error}", file=sys.stderr)


def main(payload_path: str) -> int:
    """Load and call the payload; 0 when it returned, 1 when it raised."""
    import pickle

    # As `python -m` would: the task's own directory comes first.
    sys.path.insert(0, os.getcwd())
    try:
        ensure_cloudpickle(os.environ.pop("IRIS_CLOUDPICKLE", ""))
        with open(payload_path, "rb") as file:
            function, args, kwargs = pickle.load(file)  # noqa: S301 - the submitter's own code is what we are here to run
        function(*args, **kwargs)
    except Exception as error:
        traceback.print_exc()
        write_error(describe(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
