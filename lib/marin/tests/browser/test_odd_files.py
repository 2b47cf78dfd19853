"""Files and directories as they are in a careless user's prefix: none of them is answered by a server error."""

import errno
import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from starlette.testclient import TestClient

from marin.browser.confined import Confined
from marin.browser.site import make_site
from rigging.errors import Denied, NotFound, Unavailable
from support.marin.recorded_runs import ended, started

from .conftest import Pages, pages_of_root


@pytest.mark.parametrize(
    ("number", "kind"),
    [("ENOENT", NotFound), ("ELOOP", NotFound), ("EACCES", Denied), ("ENXIO", Denied), ("EIO", Unavailable)],
)
def test_errors_of_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str, kind: type[Exception]) -> None:
    code = getattr(errno, number)

    def failing(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), "/a/path/of/this/machine")

    place = Confined(str(tmp_path))
    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(kind, match="'x'") as caught:
        place.entry("x")
    assert "this/machine" not in str(caught.value)


def test_nothing_in_a_bucket_is_nothing_although_its_library_gives_no_number() -> None:
    place = Confined("memory://nothing-is-here")
    for look in (place.entry, place.entries, place.open, lambda name: place.read(name, 0, 1)):
        with pytest.raises(NotFound, match="'x'"):
            look("x")
    assert place.size("x") is None


def test_a_file_that_goes_while_a_directory_is_listed_is_left_out(empty: Pages) -> None:
    (empty.root / "stays").touch()
    (empty.root / "goes").touch()
    listing = Confined(str(empty.root)).entries("")
    (empty.root / "goes").unlink()
    assert [entry.name for entry in listing.part(0, 10)] == ["stays"]


def test_halves_of_characters_in_what_others_wrote_are_shown_escaped(empty: Pages) -> None:
    step = empty.storage.step("half-111111", config={"text": "\ud800"})
    (Path(step["output_path"]) / ".executor_info").write_text(json.dumps(step))
    run = empty.storage.run("half-222222", [step], [started(1, description="a \udc00 b", user="\ud800"), ended()])
    for page in (empty.get("runs"), empty.get("run", run=run), empty.get("step", path="half-111111")):
        assert "\\ud" in page


def test_names_that_are_no_utf8_are_listed_and_lead_to_their_files(empty: Pages) -> None:
    inner = os.fsencode(empty.root) + b"/caf\xe9/inner"
    os.makedirs(inner)
    with open(os.fsencode(empty.root) + b"/odd-\xff\xfe.txt", "wb") as file:
        file.write(b"what it says")
    assert "odd-%FF%FE.txt" in empty.get("files")
    answer = empty.client.get("/experiments/files?path=odd-%FF%FE.txt")
    assert answer.status_code == 200
    assert "what it says" in answer.text
    assert empty.client.get("/experiments/raw?path=odd-%FF%FE.txt").content == b"what it says"
    assert "path=caf%E9%2Finner" in empty.client.get("/experiments/files?path=caf%E9").text
    assert empty.client.get("/experiments/step?path=caf%E9").status_code == 200


def test_the_pages_start_although_the_runs_cannot_be_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pages = pages_of_root(tmp_path)
    pages.site.index.runs = Mock(side_effect=Unavailable("the bucket does not answer"))  # type: ignore[method-assign]
    with TestClient(pages.app, "http://127.0.0.1:8765") as client:
        assert client.get("/login").status_code == 200
    assert "the bucket does not answer" in caplog.text
    (tmp_path / "file").write_text("")
    assert make_site(f"{tmp_path}/file", f"{tmp_path}/file/experiments").index.runs() == []
