import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fsspec.core import OpenFile

from rigging.extras import MissingExtra
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


def test_it_is_the_file_itself_where_it_is_used_as_one(tmp_path: Path) -> None:
    """`json.load(open_url(path))`, as with the builtin `open`."""
    url = tmp_path / "a.json"
    written = open_url(url, "w")
    assert not url.exists(), "nothing is opened before it is used"
    json.dump({"a": [1, 2]}, written)
    written.close()
    assert json.load(open_url(url)) == json.load(open_url(url, "r")) == {"a": [1, 2]}
    assert list(open_url(url, "r")) == ['{"a": [1, 2]}']
    assert np.frombuffer(open_url(url).read(), dtype="u1").size == 13
    with pytest.raises(ValueError, match="closed"):
        written.write("more")


def test_looking_at_it_opens_nothing_and_with_opens_it_anew(tmp_path: Path) -> None:
    url = tmp_path / "a.txt"
    url.write_text("kept")
    looked_at = open_url(url, "w")
    assert not hasattr(looked_at, "_repr_html_")
    assert not hasattr(looked_at, "shape")
    assert not looked_at.closed
    assert url.read_text() == "kept"
    read = pickle.loads(pickle.dumps(open_url(url, "r")))
    for _ in range(2):
        with read as file:
            assert file.read() == "kept"
    assert read.closed
    assert isinstance(read, OpenFile)
    assert read.path == str(url)


@pytest.mark.parametrize(
    ("url", "module", "extra"), [("gs://bucket/a", "gcsfs", "gcs"), ("s3://bucket/a", "s3fs", "s3")]
)
def test_a_missing_extra_is_named_with_its_command(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, url.partition(":")[0], raising=False)
    with pytest.raises(MissingExtra, match=rf"{extra}`.*uv pip install 'marin\[{extra}\]'") as raised:
        open_url(url)
    assert isinstance(raised.value, ImportError)
    assert "\n" not in str(raised.value)
