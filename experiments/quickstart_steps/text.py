"""HTML to text."""

import codecs
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from experiments.quickstart_steps.extras import needs_extra
from experiments.quickstart_steps.pages import read_pages
from experiments.quickstart_steps.storage import Row, read_bytes, write_json, write_rows
from marin.execution import progress
from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED: Final = re.compile(rb"""charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]+)""", re.IGNORECASE)
# Browsers read pages that declare these as windows-1252, and so do we.
_READ_AS_WINDOWS: Final = ("iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii")
_WITHOUT_CONTENT: Final = (
    "script, style, noscript, template, svg, iframe, nav, header, footer, aside, form, button, select"
)
# What begins a new line, and what stands apart from the lines around it.
_LINE_NAMES: Final = "caption dd dt li td th tr"
_BLOCK_NAMES: Final = (
    "address article blockquote div dl figcaption figure h1 h2 h3 h4 h5 h6 hr main ol p pre section table ul"
)
_BREAKS: Final = {
    **{str(name): "\n" for name in _LINE_NAMES.split()},
    **{str(name): "\n\n" for name in _BLOCK_NAMES.split()},
}


class PageRejected(Exception):
    """The page has no usable text. The message says why."""


@dataclass(frozen=True)
class TextConfig:
    """The input of one shard of pages.

    Attributes:
        pages: An archive of pages.
        method: A key of METHODS.
        output_path: Receives `documents.jsonl`, and `rejected.jsonl` with the unreadable pages.
    """

    pages: str
    method: str
    output_path: str


def decode_page(content: bytes) -> str:
    """Decode a page by its byte order mark, else its declared encoding, else UTF-8.

    Raises:
        PageRejected: The page is not in that encoding, or not text.
    """
    if not content.strip():
        raise PageRejected("the file is empty")
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if content.startswith(mark)), None)
    if encoding is None:
        if b"\0" in content:
            raise PageRejected(f"not text: a NUL at byte {content.index(0)}")
        declared = _DECLARED.search(content[:2048])
        encoding = declared.group(1).decode().lower() if declared else "utf-8"
    try:
        decoded = content.decode("windows-1252" if encoding in _READ_AS_WINDOWS else encoding)
    except LookupError:
        raise PageRejected(f"it declares the unknown encoding {encoding!r}") from None
    except UnicodeDecodeError as error:
        raise PageRejected(f"not valid {encoding} at byte {error.start}") from None
    return decoded.removeprefix("\ufeff")


def text_by_selectolax(html: str) -> str:
    """Return the text of the page's body without menus, headers, footers and forms, in lines and paragraphs."""
    with needs_extra("HTML to text"):
        from selectolax.lexbor import LexborHTMLParser

    body = LexborHTMLParser(html).body
    if body is None:
        return ""
    for node in body.css(_WITHOUT_CONTENT):
        node.decompose()
    return _tidy("".join(_pieces(body)))


def text_by_resiliparse(html: str) -> str:
    """Return the page's main content according to resiliparse."""
    with needs_extra("HTML to text"):
        from resiliparse.extract.html2text import extract_plain_text  # pyright: ignore[reportMissingModuleSource]: compiled

    return _tidy(extract_plain_text(html, main_content=True, alt_texts=False))


METHODS: Final[dict[str, Callable[[str], str]]] = {
    "selectolax": text_by_selectolax,
    "resiliparse": text_by_resiliparse,
}


def page_title(html: str) -> str:
    """Return the page's title; "" if it has none."""
    with needs_extra("HTML to text"):
        from selectolax.lexbor import LexborHTMLParser

    node = LexborHTMLParser(html).css_first("title")
    return "" if node is None else " ".join(node.text().split())


def extract_text(config: TextConfig) -> None:
    """Convert each page of a shard to a document. Unreadable pages are listed with the reason.

    Raises:
        InvalidRequest: The method is unknown.
    """
    method = METHODS.get(config.method)
    if method is None:
        raise InvalidRequest(f"method {config.method!r} of HTML to text is not one of {', '.join(METHODS)}")
    documents: list[Row] = []
    rejected: list[Row] = []
    pages = read_pages(read_bytes(config.pages))
    for done, (name, content) in enumerate(pages, 1):
        try:
            html = decode_page(content)
            text = method(html)
            if not text:
                raise PageRejected("no text outside of menus, scripts and forms")
            documents.append({"id": name, "title": page_title(html), "text": text})
        except PageRejected as error:
            rejected.append({"id": name, "reason": str(error)})
        progress(done, len(pages))
    write_rows(os.path.join(config.output_path, "documents.jsonl"), documents)
    write_rows(os.path.join(config.output_path, "rejected.jsonl"), rejected)
    stats = {"pages": len(pages), "documents": len(documents), "rejected": len(rejected)}
    write_json(os.path.join(config.output_path, "stats.json"), stats)


def _pieces(body: "LexborNode") -> Iterator[str]:
    """Yield the texts of a page in order, separated by the line breaks of its blocks."""
    # Without recursion: broken pages may be nested thousands deep.
    waiting: list[tuple[LexborNode | str, bool]] = [(body, False)]
    due = ""  # of several breaks at one place the longest counts
    while waiting:
        node, keeps_lines = waiting.pop()
        if isinstance(node, str):
            due = max(due, node)
        elif node.tag == "br":
            yield "\n"
        elif node.tag == "-text":
            text = node.text_content or ""
            text = text if keeps_lines else re.sub(r"\s+", " ", text)
            if text.strip() and due:
                yield due
                due = ""
            if not due:
                yield text
        else:
            line_break = _BREAKS.get(node.tag or "", "")
            due = max(due, line_break)
            waiting.append((line_break, False))
            children = list(node.iter(include_text=True))
            waiting += [(child, keeps_lines or node.tag == "pre") for child in reversed(children)]


def _tidy(text: str) -> str:
    """Reduce whitespace to one space between words, and at most one empty line between lines."""
    lines = [" ".join(line.split()) for line in text.replace("\0", "").split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
