"""What goes along with a job from any folder, where the command runs, and which environment it gets."""

from pathlib import Path

import pytest

from support.iris.embedded_cluster import Cluster

pytestmark = pytest.mark.process

HELLO = (
    "import os, pathlib\nplain = lambda path: sorted(name for name in os.listdir(path) if name != '__pycache__')\n"
    "print(os.path.basename(os.getcwd()), plain('.'), plain('..'), os.path.islink('../a.py'))\n"
    "pathlib.Path('new').write_text('x')\npathlib.Path('../top').write_text('x')\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plain folder: no repository, no project."""
    made = tmp_path / "plain"
    (made / "sub").mkdir(parents=True)
    (made / "a.py").write_text("print('a runs')\n")
    (made / "sub" / "hello.py").write_text(HELLO)
    return made


def test_a_plain_folder_goes_along_and_that_is_said(cluster: Cluster, folder: Path) -> None:
    (folder / ".env").write_text("SECRET=1")
    ran = cluster.iris("job", "run", "--", "python", "a.py", cwd=folder)
    assert (ran.code, ran.out) == (0, "a runs\n"), ran.text
    size = sum(path.stat().st_size for path in folder.rglob("*.py"))
    assert f"iris: sent 2 files, {size} bytes from {folder}\n" in ran.err, ran.text
    again = cluster.iris("job", "run", "--", "python", "a.py", cwd=folder)
    assert "(nothing new)" in again.err, again.text


def test_a_command_runs_in_the_directory_in_which_it_was_typed(cluster: Cluster, folder: Path) -> None:
    run = ("job", "run", "--workspace", str(folder), "--")
    # Twice: what the first one writes beside the files must not be there for the second.
    for _ in range(2):
        ran = cluster.iris(*run, "python", "hello.py", cwd=folder / "sub")
        assert (ran.code, ran.out) == (0, "sub ['hello.py'] ['a.py', 'sub'] False\n"), ran.text
    assert not (folder / "sub" / "new").exists()
    (folder / "out" / "deep").mkdir(parents=True)
    ran = cluster.iris(*run, "pwd", cwd=folder / "out" / "deep")
    assert ran.code == 0, ran.text
    assert ran.out.endswith("out/deep\n"), "also in one that was empty, and so not sent"
