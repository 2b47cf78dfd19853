"""What the experiment pages refuse: paths that lead out, scripts of others, other sites. Nothing is a 500."""

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from support.marin.recorded_runs import ended, started, step_ended

from .conftest import Pages, pages_of_root

PATHED = ("step", "files", "raw", "log")
EVIL = "<script>alert(1)</script>"


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
def test_paths_that_lead_out_are_refused(outside: Pages, page: str) -> None:
    for path in LEADING_OUT:
        answer = outside.client.get(f"/experiments/{page}", params={"path": path})
        assert answer.status_code in (400, 403, 404), path
        assert "SECRET" not in answer.text
        assert "root:" not in answer.text


def test_files_of_a_step_that_are_links_out_are_not_read(outside: Pages) -> None:
    page = outside.client.get("/experiments/step", params={"path": "step-111111"})
    assert page.status_code == 403
    assert "SECRET" not in page.text
    assert outside.status("log", path="step-111111") == 403
    for path in ("../prefix-other", "/etc", "folder", "step-111111"):
        assert outside.status("log/events", path=path) in (400, 403)
    listed = outside.get("files")
    assert "link.txt" not in listed
    assert "folder" not in listed
    assert "alias.txt" in listed  # it stays inside
    assert "fine" in outside.get("files", path="alias.txt")
    other = outside.root.parent / "prefix-other"
    (other / "theirs-111111.json").write_text(json.dumps({"steps": [], "user": "SECRET"}))
    runs = outside.root / "experiments"
    runs.mkdir()
    (runs / "theirs-111111.json").symlink_to(other / "theirs-111111.json")
    assert "theirs-111111" not in outside.get("runs")
    assert outside.status("run", run="theirs-111111") == 404


def test_what_cannot_be_shown_is_refused_or_empty_and_no_server_error(samples: Pages, empty: Pages) -> None:
    for start in (10**9, 10**15 - 1):
        assert samples.status("files", path="checkpoints/tiny-aaaaaa/.log", start=start) == 200
    os.mkfifo(empty.root / "pipe")
    assert [empty.status(page, path="pipe") for page in ("raw", "files")] == [403, 403]
    assert samples.status("run", run="nothing-like-it") == 404
    assert samples.status("runs", state="nonsense") == 400
    assert samples.status("run", run="pretrain-0a1b2c", group="nonsense") == 400


def test_files_with_scripts_are_shown_in_a_sandbox(empty: Pages) -> None:
    _evil_root(empty)
    for name, kind in (("page.html", "text/html; charset=utf-8"), ("picture.svg", "image/svg+xml")):
        headers = empty.client.get("/experiments/raw", params={"path": f"evil-111111/{name}", "show": "1"}).headers
        policy = headers["content-security-policy"]
        assert (headers["content-type"], headers["x-content-type-options"]) == (kind, "nosniff")
        assert policy.startswith("sandbox;")
        assert "allow-scripts" not in policy
        assert "default-src 'none'" in policy


def test_outputs_elsewhere_are_named_but_not_linked(empty: Pages) -> None:
    step = empty.storage.step("mine-111111")
    theirs = {**step, "name": "theirs", "output_path": "/other/prefix/theirs-222222"}
    run = empty.storage.run("mixed-333333", [step, theirs], [started(2), step_ended(theirs), ended()])
    page = empty.get("run", run=run, tab="steps")
    assert "/other/prefix/theirs-222222" in page
    assert "not below this prefix" in page
    assert "path=%2Fother" not in page


def _evil_root(pages: Pages) -> str:
    """Record a run in which everything that others write is markup."""
    step = pages.storage.step(
        "evil-111111", config={"text": EVIL, EVIL: EVIL}, unversioned={EVIL: EVIL}, source={EVIL: EVIL}, fn_name=EVIL,
        dependencies=[EVIL, f"{pages.root}/{EVIL_NAME}"],
    )  # fmt: skip
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
    step = empty.get("step", path="evil-111111", run=run)
    assert "&lt;script&gt;" in step
    tabs = [{"tab": tab} for tab in ("timeline", "steps", "config", "results")]
    runs = [{}, {"q": EVIL, "status": EVIL}, {"group": "none"}, *tabs]
    files = ["evil-111111", "evil-111111/rows.jsonl", f"evil-111111/{EVIL_NAME}.txt"]
    for page in (
        step,
        empty.get("runs"),
        empty.get("runs", q=EVIL),
        *(empty.get("run", run=run, **query) for query in runs),
        *(empty.get("files", path=path) for path in files),
        empty.get("log", path="evil-111111"),
        empty.get("panel", path="evil-111111", run=run),
        empty.get("compare", before=before, after=run),
    ):
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        # The only scripts are files of this server, and one block of data.
        for tag in re.findall(r"<script[^>]*>", page):
            assert re.match(r'<script (src="/static/|type="application/json" id="run-steps")', tag), tag
        block = re.search(r'id="run-steps">(.*?)</script>', page, re.DOTALL)
        assert block is None or "<" not in block[1]


def test_nothing_can_be_written(samples: Pages) -> None:
    for route in samples.app.routes:
        assert isinstance(route, Route)
        methods = route.methods or set()
        if route.path in ("/login", "/logout", "/live/topics"):
            continue
        assert methods <= {"GET", "HEAD"}, route.path
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = samples.client.request(method, route.path, headers={"origin": "http://127.0.0.1:8765"})
            assert answer.status_code in (404, 405), route.path


_ENDINGS = ["txt", "jsonl", "gz", "zst", "bz2", "xz", "parquet", "npy", "npz", "jsonl.gz", "png", "html"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=200),
    name=st.sampled_from([f"f.{end}" for end in _ENDINGS]),
    prefix=st.sampled_from([b"", b"\x93NUMPY\x01\x00v\x00", b"PAR1", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh9"]),
    start=st.integers(0, 400),
)
def test_no_file_makes_a_server_error(empty: Pages, content: bytes, name: str, prefix: bytes, start: int) -> None:
    (empty.root / name).write_bytes(prefix + content)
    assert empty.status("files", path=name, start=start) in (200, 400)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_STEP_KEYS = ("name", "fn_name", "config", "version", "dependencies", "unversioned", "source", "attempts")
_EVENT_KEYS = (*("event", "name", "status", "seconds", "error", "log"), *("attempts", "steps", "ends", "time", "user"))


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


EVIL_NAME = "<img src=x onerror=alert(1)>'\""


LEADING_OUT = (
    *("../prefix-other/secret.txt", "a/../../prefix-other/secret.txt", "./../prefix-other/secret.txt", ".."),
    *("//etc/passwd", "/etc/passwd", "step-111111/../../prefix-other/secret.txt", "..\\prefix-other\\secret.txt"),
    *("%2e%2e/prefix-other/secret.txt", "file:///etc/passwd", "memory://x", "link.txt", "folder", "folder/secret.txt"),
    *("a\0b", "x" * 300, "a/" * 1500 + "a", "loop", "loop/x", "x" * 5000),
)
