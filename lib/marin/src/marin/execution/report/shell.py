"""Find the IPython shell or notebook that this process serves, without importing IPython."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rigging.redaction import redact_string

# What VS Code's extension sets among a notebook's names, and Jupyter's server in a kernel's environment.
_FILE_IN_VS_CODE: Final = "__vsc_ipynb_file__"
_FILE_IN_JUPYTER: Final = "JPY_SESSION_NAME"


def interactive_shell() -> Any | None:
    """Return the IPython shell of a terminal or notebook; None in other programs."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def is_kernel() -> bool:
    """Return whether this is the kernel of a notebook (Jupyter, VS Code, Colab)."""
    return getattr(interactive_shell(), "kernel", None) is not None


def has_script() -> bool:
    """Return whether a script runs, also under IPython's `%run`, rather than notebook cells or shell lines."""
    return hasattr(sys.modules.get("__main__"), "__file__")


def has_command_line() -> bool:
    """Return whether this process's arguments are for its script, not for a notebook's kernel or a shell."""
    return interactive_shell() is None or has_script()


def script_command() -> str | None:
    """Return this process's script and arguments on one line, with secrets redacted; None in a notebook or shell.

    The script is a path as typed, or the dotted name of a module run by `python -m`.
    """
    if not has_command_line() or not has_script():
        return None
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    script = sys.argv[0] if spec is None else spec.name.removesuffix(".__main__")
    # The script may have taken its own options out of sys.argv.
    typed = next((words for words in _tails(sys.orig_argv) if words[0].removesuffix(".__main__") == script), sys.argv)
    return redact_string(shlex.join([script, *typed[1:]]))


def _tails(words: Sequence[str]) -> Iterator[Sequence[str]]:
    return (words[start:] for start in range(1, len(words)))


def notebook_of(names: Mapping[str, Any]) -> str | None:
    """Return the path of the notebook whose cells have these globals; None for other globals.

    If the frontend does not report it, return `notebook` in the current directory.
    """
    if not is_kernel() or "__file__" in names or names is not getattr(interactive_shell(), "user_global_ns", None):
        return None
    told = names.get(_FILE_IN_VS_CODE) or os.environ.get(_FILE_IN_JUPYTER)
    return os.path.abspath(told if isinstance(told, str) and told else "notebook")
