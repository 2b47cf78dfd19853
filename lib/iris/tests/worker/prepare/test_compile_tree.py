import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iris.worker.prepare import compile_tree as module
from iris.worker.prepare.compile_tree import compile_tree


@pytest.fixture(autouse=True)
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python looks beside the sources, as where the compiler runs (`python -I`)."""
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    files = {
        "a.py": "print('a')",
        "pkg/b.py": "x = 1",
        "pkg/same.py": "x = 1",
        "pkg/broken.py": "def (",
        "pkg/data.txt": "no code",
        "pkg/__pycache__/old.py": "x = 2",
    }
    for name, text in files.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    (made / "link.py").symlink_to("a.py")
    return made


def compiled(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*.pyc"))


def cached(name: str) -> str:
    return importlib.util.cache_from_source(name)


def test_each_source_is_compiled_once_for_python(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, parts = tmp_path / "compiled" / "tree", str(tmp_path / "parts")
    assert compile_tree(str(tree), parts, str(target)) == 3
    assert compiled(target) == sorted(map(cached, ("a.py", "pkg/b.py", "pkg/same.py")))
    assert len(compiled(tmp_path / "parts")) == 2, "equal sources are compiled once"
    assert os.listdir(target.parent) == ["tree"], "nothing is left beside it"
    assert sys.implementation.cache_tag in os.listdir(parts)
    (tree / "pkg" / "new.py").write_text("x = 3")
    asked: list[str] = []
    compile_file = module.py_compile.compile

    def noting(path: str, **options: object) -> object:
        asked.append(os.path.basename(path))
        return compile_file(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module.py_compile, "compile", noting)
    assert compile_tree(str(tree), parts, str(tmp_path / "two")) == 4
    assert sorted(asked) == ["broken.py", "new.py"], "what was compiled before is used again"


def test_a_source_that_was_changed_is_not_run_from_what_was_compiled(tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "compiled"
    compile_tree(str(tree), str(tmp_path / "parts"), str(target))
    place = tree / cached("a.py")
    place.parent.mkdir(exist_ok=True)
    (target / cached("a.py")).rename(place)

    def run() -> str:
        code = [sys.executable, "-B", "-c", "import a; print(a.__cached__)"]
        return subprocess.run(code, cwd=tree, capture_output=True, text=True, check=True, timeout=60).stdout

    assert run().splitlines() == ["a", str(place)]
    status = (tree / "a.py").stat()
    (tree / "a.py").write_text("print('b')")
    os.utime(tree / "a.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert run().splitlines()[0] == "b"


def test_very_large_files_are_left_out_and_without_code_there_is_an_empty_directory(tree: Path, tmp_path: Path) -> None:
    (tree / "fits.py").write_text("#" * 1024 * 1024)
    (tree / "large.py").write_text("#" * (1024 * 1024 + 1))
    assert compile_tree(str(tree), str(tmp_path / "parts"), str(tmp_path / "compiled")) == 4
    (tmp_path / "none").mkdir()
    assert compile_tree(str(tmp_path / "none"), str(tmp_path / "parts"), str(tmp_path / "empty")) == 0
    assert os.listdir(tmp_path / "empty") == []


def test_one_that_fails_leaves_no_target(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space"):
        compile_tree(str(tree), str(tmp_path / "parts"), str(tmp_path / "compiled"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "tree"]
