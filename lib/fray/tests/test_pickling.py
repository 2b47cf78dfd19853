import importlib.util
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import fray.types
from fray.sending import pickling
from rigging.errors import InvalidRequest

SOURCE = """
GREETING = "hello"

def greet(name):
    return f"{GREETING} {name}"
"""


@pytest.fixture
def own_module(tmp_path: Path) -> Iterator[ModuleType]:
    """A module that is loaded from a file off the import path."""
    file = tmp_path / "package" / "greeting_of_mine.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("greeting_of_mine", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[module.__name__]


def called_elsewhere(payload: bytes, tmp_path: Path, path: str = "") -> str:
    """The pickled function's result in a new process."""
    file = tmp_path / "payload"
    file.write_bytes(payload)
    code = f"import pickle, sys; {path}; print(pickle.load(open({str(file)!r}, 'rb'))('you'))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    return done.stdout + done.stderr


@pytest.mark.process
def test_a_function_that_only_the_sender_has_goes_by_value(own_module: ModuleType, tmp_path: Path) -> None:
    assert called_elsewhere(pickling.dumps(own_module.greet, "it"), tmp_path, "pass") == "hello you\n"
    # Once more, as nothing of it may stay behind in cloudpickle.
    assert called_elsewhere(pickling.dumps(own_module.greet, "it"), tmp_path, "pass") == "hello you\n"


@pytest.mark.process
def test_one_that_the_receiver_can_import_goes_by_reference(own_module: ModuleType, tmp_path: Path) -> None:
    payload = pickling.dumps(own_module.greet, "it", [str(tmp_path / "package")])
    assert b"greeting_of_mine" in payload
    assert len(payload) < 100
    found = called_elsewhere(payload, tmp_path, f"sys.path.append({str(tmp_path / 'package')!r})")
    assert found == "hello you\n"
    assert "No module named 'greeting_of_mine'" in called_elsewhere(payload, tmp_path, "pass")
    # A file below a root is not enough, its name must lead there.
    by_value = pickling.dumps(own_module.greet, "it", [str(tmp_path)])
    assert called_elsewhere(by_value, tmp_path, f"sys.path.append({str(tmp_path)!r})") == "hello you\n"


@pytest.mark.parametrize("installed", [json.dumps, fray.types.parse_size, pytest.raises, subprocess.run])
def test_what_is_installed_goes_by_reference(installed: object) -> None:
    payload = pickling.dumps(installed, "it")
    assert len(payload) < 100
    assert pickle.loads(payload) is installed


class Stubborn:
    """Refuses to be pickled, with an error of its own."""

    def __reduce__(self) -> str:
        raise RuntimeError("I stay here")


def test_whatever_an_object_raises_when_pickled_is_told_as_one_error() -> None:
    for thing, words in ((Stubborn(), "I stay here"), ((n for n in ()), ".*generator")):
        with pytest.raises(InvalidRequest, match=rf"job 'x' cannot be sent to another process: {words}"):
            pickling.dumps(thing, "job 'x'")
