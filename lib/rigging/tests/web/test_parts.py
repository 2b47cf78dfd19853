"""Components, pages of lists, places of graph nodes, vendored files, page sets of packages, listening sockets."""

import hashlib
import itertools
import re
import socket
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from rigging.errors import AlreadyExists, DeadlineExceeded, InvalidRequest, MarinError, Unavailable
from rigging.web.cookies import cleared_cookies
from rigging.web.design import design_app
from rigging.web.errors import status_of
from rigging.web.layout import layers_of, place_nodes
from rigging.web.paging import asked_page, page_of
from rigging.web.serving import bind
from rigging.web.templating import ago


@given(st.integers(0, 500), st.integers(-5, 100), st.integers(1, 60))
def test_the_pages_of_a_list_are_the_list(total: int, number: int, size: int) -> None:
    rows = list(range(total))
    page = page_of(rows, number, size)
    assert 1 <= page.number <= page.last
    assert list(page.rows) == rows[max(page.first_row - 1, 0) : page.last_row]
    assert [row for n in range(1, page.last + 1) for row in page_of(rows, n, size).rows] == rows
    assert page.numbers[0] == 1
    assert page.numbers[-1] == page.last
    assert page.number in page.numbers


@pytest.mark.parametrize(("text", "page"), [("3", 3), (None, 1), ("", 1), ("x", 1), ("-1", 1), ("٣", 1), ("9" * 30, 1)])
def test_a_page_is_asked_for_by_a_plain_number(text: str | None, page: int) -> None:
    assert asked_page(text) == page


@pytest.mark.parametrize(
    ("seconds", "words"), [(-5, "just now"), (59, "just now"), (7199, "1 h ago"), (3e6, "1 mo ago")]
)
def test_a_time_is_told_as_its_age(seconds: float, words: str) -> None:
    assert ago(1e9, 1e9 + seconds) == words


def test_all_components_are_on_one_page_in_two_groups() -> None:
    text = TestClient(design_app(), "http://127.0.0.1").get("/design").text
    shown = resources.files("rigging.web").joinpath("templates", "parts.html").read_text()
    assert all(
        re.search(rf'class="{word}\b', text) for word in re.findall(r'class="([a-z]+)[" ]', shown) if word != "close"
    )
    assert '<div class="log"' in text
    assert text.index('aria-label="Cluster"') < text.index('aria-label="Experiments"')


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=80))
def test_nodes_stand_right_of_what_they_need_and_apart(edges: list[tuple[int, int]]) -> None:
    needs: dict[str, list[str]] = {str(number): [] for number in range(31)}
    for low, high in edges:
        if low < high:
            needs[str(high)].append(str(low))
    layers = layers_of(needs)
    places = place_nodes(layers, needs)
    for node, wanted in needs.items():
        assert all(layers[need] < layers[node] for need in wanted)
        assert layers[node] == 0 or any(layers[need] == layers[node] - 1 for need in wanted)
    for column in set(layers.values()):
        rows = sorted(places[node].row for node in needs if layers[node] == column)
        assert all(after - before >= 1 - 1e-9 for before, after in itertools.pairwise(rows))
    assert min(place.row for place in places.values()) == 0


def test_nodes_in_a_circle_come_after_all_others() -> None:
    assert layers_of({"a": [], "b": ["c"], "c": ["b"], "d": ["a", "gone"]}) == {"a": 0, "d": 1, "b": 2, "c": 2}


def test_vendored_files_are_as_their_makers_published_them() -> None:
    tests = Path(__file__).parents[4] / "tests" / "vendored"
    for folder, least in ((resources.files("rigging.web").joinpath("static"), 4), (tests, 1)):
        listed = folder.joinpath("VENDORED.md").read_text()
        rows = re.findall(r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", listed, re.MULTILINE)
        assert len(rows) >= least
        for name, digest in rows:
            assert hashlib.sha256(folder.joinpath(name).read_bytes()).hexdigest() == digest, name


def test_a_taken_port_is_replaced_by_a_free_one_and_that_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        bound = bind(port)
        assert bound.socket.proto == socket.IPPROTO_TCP, "each small page would take 40 ms"
        try:
            assert bound.port != port
            assert str(port) in bound.note
            assert bound.url == f"http://127.0.0.1:{bound.port}"
        finally:
            bound.socket.close()
        with pytest.raises(Unavailable, match=str(port)):
            bind(port, strict=True)


@pytest.mark.parametrize(
    ("port", "host"), [(70000, "127.0.0.1"), (-1, "127.0.0.1"), (0, "no.such.host.invalid"), (0, "192.0.2.1")]
)
def test_places_that_cannot_be_are_refused(port: int, host: str) -> None:
    with pytest.raises(InvalidRequest, match=str(port) if port else re.escape(host)):
        bind(port, host)


@pytest.mark.process
def test_programs_without_pages_do_not_load_them() -> None:
    look = (
        "import sys, fray, iris.cli.main, marin.cli.main, marin.execution.executor;"
        "print([name for name in ('starlette', 'uvicorn', 'jinja2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("error", "status"), [(DeadlineExceeded("x"), 504), (AlreadyExists("x"), 409), (Unavailable("x"), 503)]
)
def test_errors_of_others_are_no_failure_of_the_server(error: MarinError, status: int) -> None:
    assert status_of(error) == status


def test_large_cookies_of_other_servers_are_deleted_where_all_are_very_large() -> None:
    large = [f"c{number}={'x' * 4000}" for number in range(40)]
    sent = [(b"cookie", "; ".join([*large, f"mine-1={'y' * 4000}", "small=1"]).encode())]
    found = cleared_cookies(sent, "/a/b", ["mine"])
    assert found[:4] == [f"c10=; Max-Age=0; Path={path}" for path in ("/", "/a/", "/a", "/a/b")]
    assert len(found) == 40, "ten at once"
    assert cleared_cookies([(b"cookie", "; ".join(large[:8]).encode())], "/", []) == []
