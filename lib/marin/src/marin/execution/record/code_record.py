"""The record of a run's code: the checked-out commit, and the texts of uncommitted code.

The short part is in the run's event log (`code` of `run_started`). The texts are one JSON object in `{directory of the
runs}/code/`, named by a digest, so equal code is stored once.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from typing import Any, Final

from marin.execution.record.contents import write_contents, write_packages
from marin.execution.record.own_modules import OwnModules
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from rigging.filesystem.location import path_in
from rigging.project.code_state import RECORD_VARIABLE, read_code_state

logger = logging.getLogger(__name__)

CODE_FOLDER: Final = "code"
_DIGITS: Final = 32


def code_recorder(
    directory: str, script_folder: str, modules: OwnModules, functions: Mapping[str, Collection[Any]]
) -> Callable[[], dict[str, Any]]:
    """Return a function that records the code of a run and returns the `code` of its `run_started`.

    The function runs git and writes to storage. It never fails.

    Args:
        directory: The directory of run records.
        script_folder: The folder of the run's script.
        modules: The user's own modules that functions of the run reach.
        functions: The functions of the run's steps by name, each with the functions and classes it contains.
    """
    return functools.partial(_record_code, directory, script_folder, modules, functions)


def _record_code(
    directory: str, script_folder: str, modules: OwnModules, functions: Mapping[str, Collection[Any]]
) -> dict[str, Any]:
    try:
        modules.keep_tables()
        state = asdict(read_code_state(script_folder))
        texts = {name: state.pop(name) for name in ("diff", "untracked")}
        keeps_texts = os.environ.get(RECORD_VARIABLE) != "0"
        return {
            **state,
            "texts": _write_texts(directory, texts) if any(texts.values()) else None,
            "contents": write_contents(directory, modules, functions) if keeps_texts else None,
            "packages": write_packages(directory),
        }
    # Storage libraries raise errors of many types, and none may end the run.
    except Exception as error:
        logger.warning("the code of this run is not recorded: %s", error)
        return {"problem": f"{type(error).__name__}: {error}"}


def _write_texts(directory: str, texts: Mapping[str, Any]) -> str:
    content = json.dumps(texts, sort_keys=True).encode()
    name = hashlib.sha256(content).hexdigest()[:_DIGITS]
    path = texts_path(directory, name)
    if read_bytes_or_none(path) != content:
        write_bytes_atomic(path, content)
    return name


def read_code_texts(directory: str, code: Mapping[str, Any], key: str = "texts") -> dict[str, Any]:
    """Return the texts of a run's code; {} if not recorded.

    Args:
        directory: The directory of run records.
        code: The `code` of the run's `run_started`.
        key: `texts`: `diff`, and `untracked` files by name. `contents`: `functions`, digests by function, file and
            definition, and their `texts` by digest. `packages`: versions by name.
    """
    name = code.get(key)
    is_name = isinstance(name, str) and name.replace("-", "").isalnum()
    content = read_bytes_or_none(texts_path(directory, str(name))) if is_name else None
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        logger.warning("%s is damaged", texts_path(directory, str(name)))
        return {}
    return found if isinstance(found, dict) else {}


def texts_path(directory: str, name: str) -> str:
    """Return the file with the texts of a run, given the name in its `code`."""
    return path_in(directory, f"{CODE_FOLDER}/{name}.json")


def describe_code(code: Mapping[str, Any]) -> str:
    """Return the short part as text: `c0ffee (main, with uncommitted changes)`."""
    notes = [str(code["branch"])] if code.get("branch") else []
    if code.get("dirty"):
        notes.append("with uncommitted changes")
    if code.get("problem"):
        notes.append(str(code["problem"]))
    about = ", ".join(notes)
    commit = code.get("commit")
    return (f"{commit} ({about})" if about else str(commit)) if commit else about or "-"
