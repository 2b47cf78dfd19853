"""Compiles the Python files of a directory: `python -I compile_tree.py DIRECTORY PARTS TARGET`.

A separate script, because the tasks' interpreter, of any version, runs it. TARGET gets the `__pycache__` directories,
to mount over the source directory, and exists only when complete. PARTS caches compiled files by the digest of their
source, because the next bundle usually differs in few files.
"""

import contextlib
import hashlib
import importlib.util
import os
import py_compile
import shutil
import sys

_MOST_BYTES = 1024 * 1024
"""Larger files are usually data in Python syntax."""


def compile_tree(tree: str, parts: str, target: str) -> int:
    """Compile the Python files of a directory and return how many there are.

    Args:
        tree: The source directory.
        parts: The cache of compiled files by the digest of their source.
        target: The resulting directory, created atomically.

    Raises:
        OSError: There is no space, or a file cannot be read.
    """
    parts = os.path.join(parts, sys.implementation.cache_tag or "none")
    os.makedirs(parts, exist_ok=True)
    temporary = f"{target}.{os.getpid()}"
    count = 0
    try:
        for directory, folders, names in os.walk(tree):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                path = os.path.join(directory, name)
                if name.endswith(".py") and not os.path.islink(path) and os.path.getsize(path) <= _MOST_BYTES:
                    compiled = _compiled(path, parts)
                    if compiled:
                        place = importlib.util.cache_from_source(os.path.join(temporary, os.path.relpath(path, tree)))
                        os.makedirs(os.path.dirname(place), exist_ok=True)
                        os.link(compiled, place)
                        count += 1
        os.makedirs(temporary, exist_ok=True)
        os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return count


def _compiled(path: str, parts: str) -> str:
    """Return the file with the compiled code of `path`; empty if it cannot be compiled."""
    with open(path, "rb") as file:
        part = os.path.join(parts, hashlib.sha256(file.read()).hexdigest() + ".pyc")
    if not os.path.exists(part):
        # Python compares a hash of the source, not its time: a task that edits its own view must not run old code.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        with contextlib.suppress(py_compile.PyCompileError, ValueError, RecursionError):
            py_compile.compile(path, cfile=part, doraise=True, invalidation_mode=mode)
    return part if os.path.exists(part) else ""


if __name__ == "__main__":
    os.nice(10)
    compile_tree(*sys.argv[1:])
