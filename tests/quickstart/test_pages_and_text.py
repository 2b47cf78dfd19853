"""Pages are found and taken as they are, and their text is read, or the reason is told why not."""

from pathlib import Path

import pytest

from experiments.quickstart_steps.pages import PagesConfig, digest_of_pages, find_pages, read_pages, take_pages
from experiments.quickstart_steps.storage import read_json, read_rows
from experiments.quickstart_steps.text import METHODS, PageRejected, TextConfig, decode_page, extract_text, page_title
from rigging.errors import InvalidRequest

PAGE = """<html><head><title> On
 tides </title><script>track()</script></head><body><nav><a href="/">Home</a></nav><main><h1>Tides</h1>
<p>The moon <b>pulls</b> on the sea &amp; the sea
gives way, slowly and twice each day, on every coast that there is.</p><p>Ports know the hour of the high water by
heart, and print it on a small card.</p></main><footer>All rights reserved</footer></body></html>"""


def take(directory: Path, output: Path, shards: int = 2) -> None:
    take_pages(PagesConfig(str(directory), digest_of_pages(str(directory)), shards, str(output)))


def test_pages_are_found_at_any_depth_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("b.html", "deep/a.HTM", "deep/er/c.xhtml", "deep/notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "again").symlink_to(tmp_path / "deep")
    (tmp_path / "link.html").symlink_to(tmp_path / "b.html")
    assert find_pages(str(tmp_path)) == ["b.html", "deep/a.HTM", "deep/er/c.xhtml"]


def test_a_directory_without_pages_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=rf"no page below '{tmp_path}': expected files named \*\.html"):
        find_pages(str(tmp_path))
    with pytest.raises(InvalidRequest, match="'/no/such/place' is not there"):
        find_pages("/no/such/place")


def test_pages_come_out_of_their_archives_as_they_were(tmp_path: Path) -> None:
    contents = {f"{n}.html": bytes([n, 255, 0, 10]) * 3 for n in range(5)}
    source = tmp_path / "source"
    source.mkdir()
    for name, content in contents.items():
        (source / name).write_bytes(content)
    for output in ("one", "two"):
        take(source, tmp_path / output)
    archives = sorted((tmp_path / "one").glob("*.zip"))
    assert [path.name for path in archives] == ["pages-00000-of-00002.zip", "pages-00001-of-00002.zip"]
    assert dict(page for path in archives for page in read_pages(path.read_bytes())) == contents
    assert [path.read_bytes() for path in archives] == [
        (tmp_path / "two" / path.name).read_bytes() for path in archives
    ]
    assert read_json(str(tmp_path / "one" / "stats.json")) == {"pages": 5, "bytes": 60}


def test_the_digest_follows_names_and_contents(tmp_path: Path) -> None:
    digests = set()
    for name, text in (("a.html", "x"), ("b.html", "x"), ("a.html", "y")):
        folder = tmp_path / f"{len(digests)}"
        folder.mkdir()
        (folder / name).write_text(text)
        digests.add(digest_of_pages(str(folder)))
    assert len(digests) == 3


def test_pages_that_change_after_the_run_was_planned_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("x")
    config = PagesConfig(str(tmp_path), digest_of_pages(str(tmp_path)), 1, str(tmp_path / "out"))
    (tmp_path / "a.html").write_text("y")
    with pytest.raises(InvalidRequest, match="have changed since the run began"):
        take_pages(config)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Gärten".encode(), "Gärten"),
        ("\ufeffGärten".encode(), "Gärten"),
        ("\ufeffGärten".encode("utf-16-le"), "Gärten"),
        (b'<meta charset="ISO-8859-1">G\xe4rten \x93x\x94', '<meta charset="ISO-8859-1">Gärten “x”'),
        (b"<meta content='text/html; charset=koi8-r'>\xc1", "<meta content='text/html; charset=koi8-r'>а"),
    ],
)
def test_characters_are_read_as_the_page_declares(content: bytes, expected: str) -> None:
    assert decode_page(content) == expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b" \n", "the file is empty"),
        (b"\x89PNG\0\0", "not a text: a NUL at byte 4"),
        (b"G\xe4rten", "not utf-8, as it should be, at byte 1"),
        (b"<meta charset=x-martian-8>", "the encoding 'x-martian-8', which is not known"),
        (b"<meta charset=base64>", "the encoding 'base64', which is not known"),
    ],
)
def test_a_page_that_is_no_text_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(PageRejected, match=reason):
        decode_page(content)


@pytest.mark.parametrize("method", METHODS)
def test_text_has_the_content_and_neither_menus_nor_scripts(method: str) -> None:
    text = METHODS[method](PAGE)
    assert "The moon pulls on the sea & the sea gives way, slowly" in text
    assert "\n\nPorts know the hour" in text
    assert not {"Home", "track()", "All rights reserved"} & set(text.split("\n"))


def test_line_breaks_are_kept_where_they_are_shown() -> None:
    assert METHODS["selectolax"]("<p>one\ntwo<pre>a = 1\n<b>b</b> = 2\n</pre>") == "one two\n\na = 1\nb = 2"


def test_items_are_lines_and_paragraphs_stand_apart() -> None:
    page = "<p>one<ul><li>two<li>three</ul><p>four<br>five<table><tr><td>six<td>seven</table>eight"
    assert METHODS["selectolax"](page) == "one\n\ntwo\nthree\n\nfour\nfive\n\nsix\nseven\n\neight"
    assert METHODS["selectolax"]("<div>one</div>two<br>three") == "one\n\ntwo\nthree"


def test_broken_markup_still_has_text() -> None:
    assert METHODS["selectolax"]("<p>one<table><tr><td>two<p><b>three") == "one\n\ntwo\n\nthree"
    assert METHODS["selectolax"]("") == ""
    assert page_title(PAGE) == "On tides"
    assert page_title("<p>none") == ""


def test_a_shard_has_documents_and_the_reasons_of_the_rest(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "good.html").write_text(PAGE)
    (source / "empty.html").write_text("")
    (source / "script.html").write_text("<body><script>start()</script></body>")
    take(source, tmp_path / "pages", 1)
    config = TextConfig(str(tmp_path / "pages" / "pages-00000-of-00001.zip"), "selectolax", str(tmp_path / "text"))
    extract_text(config)
    [document] = read_rows(str(tmp_path / "text" / "documents.jsonl"))
    assert (document["id"], document["title"]) == ("good.html", "On tides")
    assert read_rows(str(tmp_path / "text" / "rejected.jsonl")) == [
        {"id": "empty.html", "reason": "the file is empty"},
        {"id": "script.html", "reason": "no text is left without its menus, scripts and forms"},
    ]
    assert read_json(str(tmp_path / "text" / "stats.json")) == {"pages": 3, "documents": 1, "rejected": 2}


def test_there_may_be_more_shards_than_pages(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.html").write_text(PAGE)
    take(source, tmp_path / "pages", 2)
    extract_text(TextConfig(str(tmp_path / "pages" / "pages-00001-of-00002.zip"), "selectolax", str(tmp_path / "text")))
    assert read_rows(str(tmp_path / "text" / "documents.jsonl")) == []
    assert read_json(str(tmp_path / "text" / "stats.json")) == {"pages": 0, "documents": 0, "rejected": 0}


def test_an_unknown_method_names_those_that_are_known() -> None:
    with pytest.raises(InvalidRequest, match="method 'regex' of HTML to text is not one of selectolax, resiliparse"):
        extract_text(TextConfig("unread", "regex", "unwritten"))
