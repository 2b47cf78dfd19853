import os
from pathlib import Path

import pytest

from fray.backends.ray.worker.packages import ensure_packages
from fray.errors import JobFailed
from rigging.errors import Denied


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where packages are to go; not there yet."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"fray-ray-packages-{os.getuid()}"


@pytest.mark.process
def test_the_folder_is_its_users_alone_and_what_the_installer_said_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="no-such-project"):
        ensure_packages((str(tmp_path / "no-such-project"),))
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("trap", ["writable", "link"])
def test_a_folder_that_others_prepared_is_not_used(folder: Path, tmp_path: Path, trap: str) -> None:
    if trap == "writable":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Denied, match=str(folder)):
        ensure_packages(("left-pad",))
    assert list(folder.iterdir()) == []
