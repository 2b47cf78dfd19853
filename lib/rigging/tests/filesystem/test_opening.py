import subprocess
import sys
from pathlib import Path

import pytest

from rigging.filesystem import open_url, url_to_fs
from support.rigging.faults import Fault, FaultKind
from support.rigging.s3_server import S3Server

# The conftest.py gives what runs on S3 pytest.mark.process.


@pytest.mark.parametrize("form", ["{p}", "file://{p}"])
def test_writing_makes_missing_parents(form: str, tmp_path: Path) -> None:
    url = form.format(p=tmp_path / "a" / "b" / "c.txt")
    with open_url(url, "w") as handle:
        handle.write("héllo")
    with open_url(url, "r") as handle:
        assert handle.read() == "héllo"
    with open_url(url) as handle:
        assert handle.read() == "héllo".encode()


def test_reading_what_is_missing_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), open_url(tmp_path / "no" / "file"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_importing_does_not_load_fsspec() -> None:
    code = "import sys, rigging.filesystem, rigging.distributed_lock; sys.exit('fsspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_forbidden_object_of_s3_is_named(s3_server: S3Server) -> None:
    """HEAD has no body, so that all that the client says is "Forbidden"."""
    url = "s3://marin-s3-one/dir/secret"
    s3_server.inject(Fault(FaultKind.ERROR, match="dir/secret", status=403))
    for read in (lambda: open_url(url).open(), lambda: url_to_fs(url)[0].cat_file(url)):
        with pytest.raises(PermissionError, match="s3://marin-s3-one/dir/secret"):
            read()
