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
    with pytest.raises(InvalidRequest, match=rf"no page below '{tmp_path}': expected files named \*\.html"):
        find_pages(str(tmp_path))
    with pytest.raises(InvalidRequest, match="'/no/such/place' does not exist"):
        find_pages("/no/such/place")
    sources(tmp_path, dict.fromkeys(("b.html", "deep/a.HTM", "deep/er/c.xhtml", "deep/notes.txt"), "x"))
    (tmp_path / "again").symlink_to(tmp_path / "deep")
    (tmp_path / "link.html").symlink_to(tmp_path / "b.html")
    assert find_pages(str(tmp_path)) == ["b.html", "deep/a.HTM", "deep/er/c.xhtml"]


def test_pages_come_out_of_their_archives_as_they_were(tmp_path: Path) -> None:
    contents: dict[str, str | bytes] = {f"{n}.html": bytes([n, 255, 0, 10]) * 3 for n in range(5)}
    source = sources(tmp_path / "source", contents)
    for output in ("one", "two"):
        take(source, tmp_path / output)
    archives = sorted((tmp_path / "one").glob("*.zip"))
    assert [path.name for path in archives] == ["pages-00000-of-00002.zip", "pages-00001-of-00002.zip"]
    assert dict(page for path in archives for page in read_pages(path.read_bytes())) == contents
    again = [(tmp_path / "two" / path.name).read_bytes() for path in archives]
    assert [path.read_bytes() for path in archives] == again
    assert read_json(str(tmp_path / "one" / "stats.json")) == {"pages": 5, "bytes": 60}


def test_the_digest_follows_names_and_contents_and_a_change_after_it_is_refused(tmp_path: Path) -> None:
    pages = [{"a.html": "x"}, {"b.html": "x"}, {"a.html": "y"}]
    folders = [sources(tmp_path / str(number), dict(each)) for number, each in enumerate(pages)]
    assert len({digest_of_pages(str(folder)) for folder in folders}) == 3
    config = PagesConfig(str(folders[0]), digest_of_pages(str(folders[0])), 1, str(tmp_path / "out"))
    (folders[0] / "a.html").write_text("y")
    with pytest.raises(InvalidRequest, match="have changed since the run began"):
        take_pages(config)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>one\ntwo<pre>a = 1\n<b>b</b> = 2\n</pre>", "one two\n\na = 1\nb = 2"),
        ("<p>one<ul><li>two<li>three</ul><p>four<br>five<table><tr><td>six<td>seven</table>eight",
            "one\n\ntwo\nthree\n\nfour\nfive\n\nsix\nseven\n\neight"),
        ("<div>one</div>two<br>three", "one\n\ntwo\nthree"),
        ("<p>one<table><tr><td>two<p><b>three", "one\n\ntwo\n\nthree"),
        ("", ""),
    ],
)  # fmt: skip
def test_lines_and_paragraphs_are_those_that_are_shown_also_of_broken_markup(page: str, text: str) -> None:
    assert METHODS["selectolax"](page) == text


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
        (b"\x89PNG\0\0", "not text: a NUL at byte 4"),
        (b"G\xe4rten", "not valid utf-8 at byte 1"),
        (b"<meta charset=x-martian-8>", "the unknown encoding 'x-martian-8'"),
        (b"<meta charset=base64>", "the unknown encoding 'base64'"),
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


def test_a_shard_has_documents_and_the_reasons_of_the_rest(tmp_path: Path) -> None:
    script = "<body><script>start()</script></body>"
    source = sources(tmp_path / "source", {"good.html": PAGE, "empty.html": "", "script.html": script})
    take(source, tmp_path / "pages", 1)
    extract_text(TextConfig(f"{tmp_path}/pages/pages-00000-of-00001.zip", "selectolax", str(tmp_path / "text")))
    [document] = read_rows(str(tmp_path / "text" / "documents.jsonl"))
    assert (document["id"], document["title"]) == ("good.html", "On tides")
    assert page_title("<p>none") == ""
    assert read_rows(str(tmp_path / "text" / "rejected.jsonl")) == [
        {"id": "empty.html", "reason": "the file is empty"},
        {"id": "script.html", "reason": "no text outside of menus, scripts and forms"},
    ]
    assert read_json(str(tmp_path / "text" / "stats.json")) == {"pages": 3, "documents": 1, "rejected": 2}
    take(source, tmp_path / "four", 4)
    extract_text(TextConfig(f"{tmp_path}/four/pages-00003-of-00004.zip", "selectolax", str(tmp_path / "none")))
    assert read_json(str(tmp_path / "none" / "stats.json")) == {"pages": 0, "documents": 0, "rejected": 0}
    with pytest.raises(InvalidRequest, match="method 'regex' of HTML to text is not one of selectolax, resiliparse"):
        extract_text(TextConfig("unread", "regex", "unwritten"))


def sources(root: Path, pages: dict[str, str | bytes]) -> Path:
    """Write pages; returns their folder."""
    for name, content in pages.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return root
