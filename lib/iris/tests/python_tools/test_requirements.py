"""Where the paths in requirements and the like point."""

from pathlib import Path

import pytest

from iris.python_tools.requirements import file_target, named_paths
from rigging.errors import InvalidRequest


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ("../lib", "/w/lib"),
        ("./a/../b", "/w/p/b"),
        ("/abs/lib", "/abs/lib"),
        ("lib%20a#1", "/w/p/lib%20a#1"),
        ("file:///abs/lib%20a#egg=a", "/abs/lib a"),
        ("FILE:../lib", "/w/lib"),
    ],
)
def test_a_path_is_taken_as_it_is_written_and_only_a_url_is_decoded(written: str, target: str) -> None:
    assert file_target(written, Path("/w/p")) == Path(target)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("-e ../x", "../x"),
        ("-e../x", "../x"),
        ("--editable ../x[all,dev]", "../x"),
        ("--editable=x", "x"),
        ("-e 'x y'", "x y"),
        ("./local ; python_version < '3.12'", "./local"),
        ("/abs/lib", "/abs/lib"),
        ("~/lib", "~/lib"),
        ("wheels/a-1-py3-none-any.WHL", "wheels/a-1-py3-none-any.WHL"),
        ("a.tar.gz", "a.tar.gz"),
        ("a.zip  # ours", "a.zip"),
        ("libs/a", "libs/a"),
        ("pkg @ ../x", "../x"),
        ("pkg[all]@./x.whl", "./x.whl"),
        ("pkg @ FILE:../x", "FILE:../x"),
        ("-f ../wheels", "../wheels"),
        ("--find-links=../wheels", "../wheels"),
        ("-f file:///w", "file:///w"),
    ],
)
def test_a_line_that_names_a_path(tmp_path: Path, line: str, path: str) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"{line}\n")
    (found,) = named_paths(file)
    assert (found.written, found.origin, found.is_file) == (path, "requirements.txt", False)
    assert found.target == file_target(path, tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "", "# ../x", "numpy", "numpy>=2", "requests[socks]==2.*", "git+https://host/a/b.git@v1", "-i https://host/simple",
        "pkg @ https://host/p.whl", "https://host/p.whl", "-e git+https://host/a", "-e ${HERE}/x", "-f https://host/w",
        "-r https://host/r.txt", "a/b>=1", "--no-binary :all:",
    ],
)  # fmt: skip
def test_a_line_that_names_none(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")
    assert list(named_paths(tmp_path / "requirements.txt")) == []


def test_files_that_a_file_includes_are_read_once_each_from_where_they_lie_or_named(tmp_path: Path) -> None:
    """What they name by path is meant from where pip runs, though: the first one's folder."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "requirements.txt").write_text("-r sub/more.txt\n--constraint=limits.txt\n-e ./own\n")
    (tmp_path / "sub/more.txt").write_text("--requirement ../requirements.txt\n-cno.txt\n./there \\\n ; extra\n")
    (tmp_path / "limits.txt").write_text("./limit.whl\n")
    found = [
        (item.written, item.target, item.origin, item.is_file) for item in named_paths(tmp_path / "requirements.txt")
    ]
    assert found == [
        ("sub/more.txt", tmp_path / "sub/more.txt", "requirements.txt", True),
        ("../requirements.txt", tmp_path / "requirements.txt", "sub/more.txt", True),
        ("no.txt", tmp_path / "sub/no.txt", "sub/more.txt", True),
        ("./there", tmp_path / "there", "sub/more.txt", False),
        ("limits.txt", tmp_path / "limits.txt", "requirements.txt", True),
        ("./limit.whl", tmp_path / "limit.whl", "limits.txt", False),
        ("./own", tmp_path / "own", "requirements.txt", False),
    ]
    (tmp_path / "requirements.txt").write_text("-r sub/bad.txt\n")
    (tmp_path / "sub/bad.txt").write_bytes(b"\xff")
    with pytest.raises(InvalidRequest, match=r"^sub/bad\.txt cannot be read: "):
        list(named_paths(tmp_path / "requirements.txt"))
