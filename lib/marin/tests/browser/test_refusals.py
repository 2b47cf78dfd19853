"""What the experiment pages refuse: paths that lead out, scripts of others, other sites. Nothing is a 500."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route
from starlette.testclient import TestClient

from marin.browser.confined import Confined
from marin.testing.recorded_runs import ended, started, step_ended
from rigging.errors import Denied, InvalidRequest, MarinError
from rigging.web.login import Viewer

from .conftest import Pages, pages_of_root

PATHED = ("step", "files", "raw", "log")
EVIL = "<script>alert(1)</script>"
EVIL_NAME = "<img src=x onerror=alert(1)>'\""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """A root beside which, and out of which by links, there are secrets."""
    root = tmp_path_factory.mktemp("outside") / "prefix"
    root.mkdir()
    other = root.parent / "prefix-other"
    other.mkdir()
    (other / "secret.txt").write_text("SECRET")
    (other / ".log").write_text("SECRET")
    (root / "link.txt").symlink_to(other / "secret.txt")
    (root / "folder").symlink_to(other)
    (root / "loop").symlink_to("loop")
    (root / "step-111111").mkdir()
    for name in (".log", ".executor_info", ".executor_status", ".error"):
        (root / "step-111111" / name).symlink_to(other / "secret.txt")
    (root / "inside.txt").write_text("fine")
    (root / "alias.txt").symlink_to(root / "inside.txt")
    return pages_of_root(root)


@pytest.mark.parametrize("page", PATHED)
@pytest.mark.parametrize(
    "path",
    [
        "../prefix-other/secret.txt",
        "a/../../prefix-other/secret.txt",
        "./../prefix-other/secret.txt",
        "..",
        "//etc/passwd",
        "/etc/passwd",
        "step-111111/../../prefix-other/secret.txt",
        "..\\prefix-other\\secret.txt",
        "%2e%2e/prefix-other/secret.txt",
        "file:///etc/passwd",
        "memory://x",
        "link.txt",
        "folder",
        "folder/secret.txt",
        "a\0b",
        "x" * 300,
        "a/" * 1500 + "a",
        "loop",
        "loop/x",
        "x" * 5000,
    ],
)
def test_paths_that_lead_out_are_refused(outside: Pages, page: str, path: str) -> None:
    answer = outside.client.get(f"/experiments/{page}", params={"path": path})
    assert answer.status_code in (400, 403, 404), path
    assert "SECRET" not in answer.text
    assert "root:" not in answer.text


@pytest.mark.parametrize("path", ["../prefix-other", "/etc", "folder", "step-111111"])
def test_logs_that_lead_out_are_not_followed(outside: Pages, path: str) -> None:
    answer = outside.client.get("/experiments/log/events", params={"path": path})
    assert answer.status_code in (400, 403)


def test_files_of_a_step_that_are_links_out_are_not_read(outside: Pages) -> None:
    page = outside.client.get("/experiments/step", params={"path": "step-111111"})
    assert page.status_code == 403
    assert "SECRET" not in page.text
    assert outside.status("log", path="step-111111") == 403
    listed = outside.get("files")
    assert "link.txt" not in listed
    assert "folder" not in listed
    assert "alias.txt" in listed  # it stays inside
    assert "fine" in outside.get("files", path="alias.txt")


def test_places_behind_the_end_of_a_file_are_empty(samples: Pages) -> None:
    for start in (10**9, 10**15 - 1):
        assert samples.status("files", path="checkpoints/tiny-aaaaaa/.log", start=start) == 200


def test_runs_that_are_links_are_not_listed(outside: Pages) -> None:
    other = outside.root.parent / "prefix-other"
    (other / "theirs-111111.json").write_text(json.dumps({"steps": [], "user": "SECRET"}))
    runs = outside.root / "experiments"
    runs.mkdir()
    (runs / "theirs-111111.json").symlink_to(other / "theirs-111111.json")
    assert "theirs-111111" not in outside.get("runs")
    assert outside.status("run", run="theirs-111111") == 404


def test_pipes_and_devices_are_no_files(empty: Pages) -> None:
    os.mkfifo(empty.root / "pipe")
    assert empty.status("raw", path="pipe") == 403
    assert empty.status("files", path="pipe") == 403


def test_outputs_elsewhere_are_named_but_not_linked(empty: Pages) -> None:
    step = empty.storage.step("mine-111111")
    theirs = {**step, "name": "theirs", "output_path": "/other/prefix/theirs-222222"}
    run = empty.storage.run("mixed-333333", [step, theirs], [started(2), step_ended(theirs), ended()])
    page = empty.get("run", run=run)
    assert "/other/prefix/theirs-222222" in page
    assert "not below this prefix" in page
    assert "path=%2Fother" not in page


@given(st.text(max_size=40), st.sampled_from(["", "a/", "../", "./", "//", "a/../"]))
def test_a_name_is_below_the_root_or_refused(tmp_path_factory: pytest.TempPathFactory, name: str, start: str) -> None:
    root = Path(tmp_path_factory.getbasetemp(), "confined")
    try:
        path = Confined(str(root)).path(start + name)
    except (InvalidRequest, Denied):
        return
    assert os.path.realpath(path) == str(root.resolve()) or os.path.realpath(path).startswith(f"{root.resolve()}/")


def _evil_root(pages: Pages) -> str:
    """Record a run in which everything that others write is markup."""
    step = pages.storage.step(
        "evil-111111",
        config={"text": EVIL, EVIL: EVIL},
        unversioned={EVIL: EVIL},
        source={EVIL: EVIL},
        fn_name=EVIL,
        dependencies=[EVIL, f"{pages.root}/{EVIL_NAME}"],
    )
    step["name"] = EVIL_NAME
    path = Path(step["output_path"])
    (path / ".executor_info").write_text(json.dumps(step))
    (path / ".log").write_text(EVIL)
    (path / ".error").write_text(EVIL)
    (path / f"{EVIL_NAME.replace('/', '')}.txt").write_text(EVIL)
    (path / "page.html").write_text(EVIL)
    (path / "rows.jsonl").write_text(json.dumps({EVIL: EVIL}) + "\n")
    (path / "picture.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg">{EVIL}</svg>')
    attempt = {"outcome": EVIL, "seconds": 1.0, "queued_seconds": EVIL, "error": EVIL}
    events = [
        started(1, description=EVIL, host=EVIL, user=EVIL),
        step_ended(step, EVIL, error=EVIL, log=f"job {EVIL}", attempts=[attempt]),
        ended(EVIL, ends={EVIL: 1}),
    ]
    return pages.storage.run("evil-222222", [step], events)


def test_markup_in_what_others_wrote_stays_text(empty: Pages) -> None:
    run = _evil_root(empty)
    before = empty.storage.run("evil-444444", [empty.storage.step("evil-555555")], [started(), ended()])
    pages = [
        empty.get("runs"),
        empty.get("runs", q=EVIL),
        empty.get("run", run=run),
        empty.get("run", run=run, q=EVIL, status=EVIL),
        empty.get("run", run=run, group="none"),
        empty.get("step", path="evil-111111", run=run),
        empty.get("files", path="evil-111111"),
        empty.get("files", path="evil-111111/rows.jsonl"),
        empty.get("files", path=f"evil-111111/{EVIL_NAME}.txt"),
        empty.get("log", path="evil-111111"),
        empty.get("compare", before=before, after=run),
    ]
    assert "&lt;script&gt;" in pages[5]
    for page in pages:
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        # The only scripts are files of this server, and one block of data.
        for tag in re.findall(r"<script[^>]*>", page):
            assert re.match(r'<script (src="/static/|type="application/json" id="run-steps")', tag), tag
        block = re.search(r'id="run-steps">(.*?)</script>', page, re.DOTALL)
        assert block is None or "<" not in block[1]


@pytest.mark.parametrize(
    ("name", "kind"), [("page.html", "text/html; charset=utf-8"), ("picture.svg", "image/svg+xml")]
)
def test_files_with_scripts_are_shown_in_a_sandbox(empty: Pages, name: str, kind: str) -> None:
    _evil_root(empty)
    answer = empty.client.get("/experiments/raw", params={"path": f"evil-111111/{name}", "show": "1"})
    assert answer.headers["content-type"] == kind
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox;")
    assert "allow-scripts" not in policy
    assert "default-src 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_pages_need_a_login_and_refuse_other_sites(samples: Pages) -> None:
    stranger = TestClient(samples.app, "http://127.0.0.1:8765")
    link = samples.app.state.web.login_path(Viewer("ada"))
    for path in ("runs", "run?run=x", "raw?path=x", "run/events?run=x"):
        assert stranger.get(f"/experiments/{path}").status_code == 401
        assert samples.client.get(f"/experiments/{path}", headers={"origin": "http://evil.test"}).status_code == 403
        assert samples.client.get(f"/experiments/{path}", headers={"host": "evil.test"}).status_code == 403
    assert samples.client.get(link).status_code == 200
    assert stranger.get(link).status_code == 403  # used


def test_nothing_can_be_written(samples: Pages) -> None:
    for route in samples.app.routes:
        assert isinstance(route, Route)
        methods = route.methods or set()
        if route.path in ("/login", "/logout"):
            continue
        assert methods <= {"GET", "HEAD"}, route.path
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = samples.client.request(method, route.path, headers={"origin": "http://127.0.0.1:8765"})
            assert answer.status_code in (404, 405), route.path


_TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "pretrain-0a1b2c",
            "evaluate",
            "experiments",
            "succeeded",
            "none",
            "like",
            "-1",
            "0",
            "1",
            "1e9",
            "NaN",
            "*",
            "[",
            "?",
            ".",
            "%00",
        ]
    ),
    st.sampled_from(
        [f"checkpoints/tiny-aaaaaa/{name}" for name in ("samples.parquet", "samples.jsonl.gz", "weights.npy")]
    ),
    st.sampled_from(["", "\0", "\ud7ff", "9" * 30, "checkpoints/tiny-aaaaaa"]),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_request_is_answered_by_a_server_error(samples: Pages, data: st.DataObject) -> None:
    _send_any_request(samples, data)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_none_of_many_requests_is_answered_by_a_server_error(samples: Pages, data: st.DataObject) -> None:
    _send_any_request(samples, data)


def _send_any_request(samples: Pages, data: st.DataObject) -> None:
    paths = sorted({route.path for route in samples.app.routes if isinstance(route, Route)})
    path = data.draw(st.sampled_from([path for path in paths if not path.endswith("/events")]))
    path = path.replace("{name:path}", data.draw(st.sampled_from(["web/page.css", "web/x", "../x", "marin/a b", ""])))
    names = (
        "run",
        "path",
        "q",
        "page",
        "state",
        "status",
        "group",
        "start",
        "end",
        "before",
        "after",
        "show",
        "token",
        "v",
    )
    query = data.draw(st.dictionaries(st.sampled_from(names), _TEXTS, max_size=5))
    method = data.draw(st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "OPTIONS"]))
    headers = data.draw(
        st.fixed_dictionaries(
            {"origin": st.just("http://127.0.0.1:8765")},
            optional={
                "hx-request": st.sampled_from(["true", "x"]),
                "range": st.just("bytes=0-1"),
                "accept": st.sampled_from(["*/*", "text/event-stream"]),
            },
        )
    )
    body = data.draw(st.binary(max_size=30)) if method == "POST" else None
    if path == "/logout":
        return  # it would end the session of the requests that follow
    client = samples.client
    answer = client.request(method, path, params=query, headers=headers, content=body, follow_redirects=False)
    assert answer.status_code < 500, (method, path, query)


_ENDINGS = ["txt", "jsonl", "gz", "zst", "bz2", "xz", "parquet", "npy", "npz", "jsonl.gz", "png", "html"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=200),
    name=st.sampled_from([f"f.{end}" for end in _ENDINGS]),
    prefix=st.sampled_from([b"", b"\x93NUMPY\x01\x00v\x00", b"PAR1", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh9"]),
    start=st.integers(0, 400),
)
def test_no_file_is_answered_by_a_server_error(
    empty: Pages, content: bytes, name: str, prefix: bytes, start: int
) -> None:
    (empty.root / name).write_bytes(prefix + content)
    assert empty.status("files", path=name, start=start) in (200, 400)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_STEP_KEYS = ("name", "fn_name", "config", "version", "dependencies", "unversioned", "source", "attempts")
_EVENT_KEYS = (
    "event",
    "name",
    "status",
    "seconds",
    "error",
    "log",
    "attempts",
    "steps",
    "ends",
    "time",
    "host",
    "user",
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    step=st.dictionaries(st.sampled_from(_STEP_KEYS), _JSON),
    head=st.dictionaries(st.sampled_from(("user", "worker_id", "description", "git_commit", "created_date")), _JSON),
    events=st.lists(st.dictionaries(st.sampled_from(_EVENT_KEYS), _JSON), max_size=3),
)
def test_no_record_is_answered_by_a_server_error(
    empty: Pages, step: dict[str, object], head: dict[str, object], events: list[dict[str, object]]
) -> None:
    path = empty.root / "odd-111111"
    path.mkdir(exist_ok=True)
    runs = empty.root / "experiments"
    runs.mkdir(exist_ok=True)
    (path / ".executor_info").write_text(json.dumps(step))
    (runs / "odd-222222.json").write_text(json.dumps({**head, "steps": [{**step, "output_path": str(path)}]}))
    lines = "".join(json.dumps({**event, "path": str(path)}) + "\n" for event in events)
    (runs / "odd-222222-20231114T010000.000000Z-4.events.jsonl").write_text(lines)
    for page, query in (
        ("runs", {}),
        ("runs", {"q": "a"}),
        ("run", {"run": "odd"}),
        ("step", {"path": "odd-111111", "run": "odd"}),
        ("compare", {"before": "odd-222222", "after": "odd-222222"}),
    ):
        assert empty.status(page, **query) == 200, page


def test_an_error_of_ours_is_never_a_server_error(samples: Pages) -> None:
    assert issubclass(InvalidRequest, MarinError)
    assert samples.status("run", run="nothing-like-it") == 404
    assert samples.status("runs", state="nonsense") == 400
    assert samples.status("run", run="pretrain-0a1b2c", group="nonsense") == 400
