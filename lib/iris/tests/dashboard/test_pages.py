"""The cluster's pages, beside a real controller: what they show, to whom, and what they refuse."""

import re
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from iris.dashboard.cluster_client import viewer_of
from iris.rpc import access_pb2
from iris.rpc import iris_pb2 as pb
from iris.rpc.logformat import encode
from iris.testing.users import User
from iris.testing.worker import ScriptedWorker
from rigging.testing import eventually

from .conftest import BASE

RUNNING, FAILED = pb.TASK_STATE_RUNNING, pb.TASK_STATE_FAILED
T = 1_790_000_000_000
SCRIPT = "<script>alert(1)</script>"


def text_of(client: TestClient, path: str, status: int = 200, **headers: str) -> str:
    answer = client.get(path, headers=headers)
    assert answer.status_code == status, answer.text
    return unescape(answer.text)


def token_in(page: str) -> str:
    found = re.search(r'data-form-token="([^"]+)"', page)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    "path", ["/jobs", "/job?id=/ann/a", "/logs?id=/ann/a", "/sql?q=SELECT+1", "/events", "/job/usage?id=/ann/a"]
)
def test_nothing_is_shown_to_who_is_not_signed_in(pages: Any, path: str) -> None:
    assert "Sign in" in text_of(pages.running, path, 401)


def test_a_link_is_good_once(pages: Any) -> None:
    client = pages.browser("ann")
    link = pages.app.state.web.login_path(viewer_of("ann", is_admin=False, may_write=False))
    assert client.get(link).status_code == 200
    assert "Signed in" in text_of(client, link), "whom it has signed in goes on"
    client.cookies.clear()
    assert "was used already" in text_of(client, link, 403)


def test_the_list_shows_roots_and_unfolds_and_finds(pages: Any, admin: User) -> None:
    admin.submit("/ann/train", description="the big one")
    admin.submit("/ann/train/child")
    admin.submit("/bob/other")
    client = pages.browser("root", is_admin=True)
    page = text_of(client, "/jobs")
    assert "/ann/train" in page
    assert "/bob/other" in page
    assert "/ann/train/child" not in page
    assert "▸ 1" in page
    assert "/ann/train/child" in text_of(client, "/jobs/children?parent=/ann/train&depth=1")
    assert "/ann/train/child" in text_of(client, "/jobs?q=CHILD")
    assert "/bob/other" not in text_of(client, "/jobs?user=ann")
    assert "big one" in text_of(client, "/jobs?q=big")
    assert "No job is like that" in text_of(client, "/jobs?state=failed")
    part = text_of(client, "/jobs", **{"HX-Request": "true"})
    assert "<html" not in part
    assert "is none; allowed are live" in text_of(client, "/jobs?state=odd", 400)


def test_a_job_shows_why_it_waits_and_why_it_failed(pages: Any, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", FAILED, exit_code=3, error="out of luck")
    admin.wait("/ann/a")
    admin.submit("/ann/large", replicas=3)  # of two cores
    worker.wait_for_start("/ann/large/1:0")
    client = pages.browser("ann")
    page = text_of(client, "/job?id=/ann/a")
    assert "out of luck" in page
    assert "exit code 3" in page
    assert "Waits because" in text_of(client, "/job?id=/ann/large")
    assert "/ann/large" in text_of(client, "/queue")
    assert "out of luck" in text_of(client, "/task?id=/ann/a/0")
    assert "exit code 3" in text_of(client, "/job/tasks?id=/ann/a")


def test_attempts_that_were_tried_again_stay_on_the_timeline(pages: Any, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a", max_retries_failure=1)
    for number, lasted in enumerate((2000, 4000)):
        name = f"/ann/a/0:{number}"
        worker.wait_for_start(name)
        begin = T + 10_000 * number
        worker.observe(name, RUNNING, started_at_ms=begin, at_ms=begin)
        used = pb.AttemptUsage(attempt_id=name, cpu_ms=5, at_ms=begin + lasted)
        worker.observe(name, FAILED, exit_code=3, error="out of luck", at_ms=begin + lasted, usage=used)
    admin.wait("/ann/a")
    client = pages.browser("ann")
    page = text_of(client, "/job?id=/ann/a")
    assert "attempt 0, 2.0 s: out of luck" in page
    assert 'class="bar-earlier" x="0.00" y="1" width="14.29"' in page
    assert 'class="bar-failed" x="71.43" y="1" width="28.57"' in page
    rows = text_of(client, "/task?id=/ann/a/0").split("<tbody>")[1].split("</tr>")
    assert "4.0 s" in rows[0]
    assert "2.0 s" in rows[1]
    answer = admin.stubs.cluster.Query(pb.QueryRequest(sql="SELECT began_at_ms, at_ms FROM attempt_usage"))
    assert [[value.integer for value in row.values] for row in answer.rows] == [
        [T, T + 2000],
        [T + 10_000, T + 14_000],
    ]


def test_what_users_may_not_see_the_pages_do_not_show(pages: Any, admin: User) -> None:
    admin.submit("/bob/b", argv=("echo", "bobs-secret"), description="bobs-secret")
    client = pages.browser("ann")
    assert "bobs-secret" not in text_of(client, "/jobs")
    for path in ("/job?id=/bob/b", "/logs?id=/bob/b", "/task?id=/bob/b/0"):
        assert "only user bob and admins may" in text_of(client, path, 403)
    assert "bobs-secret" not in text_of(client, "/sql?q=" + quote("SELECT * FROM jobs"))
    assert "bobs-secret" in text_of(pages.browser("root", is_admin=True), "/job?id=/bob/b")


def test_a_session_ends_with_the_token_by_which_it_was_opened(pages: Any, admin: User) -> None:
    admin.submit("/ann/a", argv=("echo", "anns-command"))
    lost, kept = (admin.stubs.cluster.CreateToken(pb.CreateTokenRequest(user="ann")).token_id for _ in "ab")
    client = pages.browser("ann", token_id=lost)
    assert "anns-command" in text_of(client, "/job?id=/ann/a")
    admin.stubs.access.RevokeUserToken(access_pb2.RevokeUserTokenRequest(token_id=lost))
    eventually(lambda: client.get("/session").status_code == 401, "it is over")
    for path in ("/job?id=/ann/a", "/jobs", "/logs?id=/ann/a"):
        page = text_of(client, path, 401)
        assert f"What let you in, the token {lost}, was revoked." in page
        assert "anns-command" not in page
    assert "anns-command" in text_of(pages.browser("ann", token_id=kept), "/job?id=/ann/a")
    assert "was not made by this cluster" in text_of(pages.browser("ann", token_id="0000ffff"), "/jobs", 403)


def test_names_lines_and_errors_are_escaped(pages: Any, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a", description=SCRIPT, argv=(SCRIPT,))
    worker.wait_for_start("/ann/a/0:0")
    data = encode(False, T, f"hello {SCRIPT} \x1b[31mred".encode())
    worker.append_log("/ann/a/0:0", 0, data)
    worker.wait_for_log_ack("/ann/a/0:0", len(data))
    worker.observe("/ann/a/0:0", FAILED, exit_code=1, error=SCRIPT, log_size=len(data))
    admin.wait("/ann/a")
    client = pages.browser("ann")
    for path in ("/jobs", "/job?id=/ann/a", "/logs?id=/ann/a", "/job/tasks?id=/ann/a", "/task?id=/ann/a/0"):
        raw = client.get(path).text
        assert SCRIPT not in raw, path
        assert "\x1b" not in raw, path
    assert "hello" in client.get("/logs?id=/ann/a").text
    for odd in (
        f"/jobs?q={quote(SCRIPT)}",
        f"/jobs?state={quote(SCRIPT)}",
        f"/sql?q={quote(SCRIPT)}",
        f"/x{quote(SCRIPT)}",
    ):
        assert SCRIPT not in client.get(odd).text


def test_logs_are_searched_followed_and_downloaded(pages: Any, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    data = b"".join(encode(i % 2 == 1, T + i // 3, b"line %d" % i) for i in range(50))
    worker.append_log("/ann/a/0:0", 0, data)
    worker.wait_for_log_ack("/ann/a/0:0", len(data))
    worker.observe("/ann/a/0:0", pb.TASK_STATE_SUCCEEDED, log_size=len(data))
    admin.wait("/ann/a")
    client = pages.browser("ann")
    page = text_of(client, "/logs?id=/ann/a")
    assert [int(i) for i in re.findall(r">line (\d+)<", page)] == list(range(50))
    assert re.findall(r">line (\d+)<", text_of(client, "/logs?id=/ann/a&grep=line+4%5B0-3%5D")) == [
        "40",
        "41",
        "42",
        "43",
    ]
    assert text_of(client, "/logs/text?id=/ann/a") == "".join(f"line {i}\n" for i in range(50))
    assert "regular expression" in text_of(client, "/logs?id=/ann/a&grep=%28", 400)
    for attempt in ("9999999999", "x", "-1"):
        assert "number of an attempt" in text_of(client, f"/logs?id=/ann/a&attempt={attempt}", 400)
    # The page has all lines: of those that follow none is told again.
    (address,) = re.findall(r'data-follow="([^"]+)"', page)
    assert "event: lines" not in text_of(client, address)
    again = text_of(client, "/logs/follow?id=/ann/a", **{"last-event-id": f"{T + 15}-2"})
    assert re.findall(r"line (\d+)", again) == ["47", "48", "49"]
    assert "event: end" in again


def test_stopping_needs_a_link_that_allows_it_and_a_form_of_the_session(pages: Any, admin: User) -> None:
    admin.submit("/ann/a")
    reader = pages.browser("ann")
    page = text_of(reader, "/job?id=/ann/a")
    assert "Stop this job" not in page
    form = {"form_token": token_in(page), "id": "/ann/a"}
    assert reader.post("/job/stop", data=form, headers={"origin": BASE}).status_code == 403
    writer = pages.browser("ann", may_write=True)
    page = text_of(writer, "/job?id=/ann/a")
    form = {"form_token": token_in(page), "id": "/ann/a"}
    assert writer.post("/job/stop", data=form, headers={"origin": "http://evil.example"}).status_code == 403
    assert writer.post("/job/stop", data={"id": "/ann/a"}, headers={"origin": BASE}).status_code == 403
    assert admin.get("/ann/a").state == pb.JOB_STATE_PENDING
    assert writer.post("/job/stop", data=form, headers={"origin": BASE}).status_code == 200
    assert admin.get("/ann/a").state == pb.JOB_STATE_KILLED
    assert "stopped by ann in the dashboard" in admin.get("/ann/a").error


def test_workers_are_cordoned_by_admins_alone(pages: Any, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    form = {"id": "w1", "do": "cordon", "reason": "fan is loud"}
    client = pages.browser("ann", may_write=True)
    token = token_in(text_of(client, "/workers"))
    refused = client.post("/worker/cordon", data=form | {"form_token": token}, headers={"origin": BASE})
    assert refused.status_code == 403
    assert "may not cordon workers" in refused.text
    client = pages.browser("root", is_admin=True, may_write=True)
    token = token_in(text_of(client, "/workers"))
    client.post("/worker/cordon", data=form | {"form_token": token}, headers={"origin": BASE})
    assert "fan is loud" in text_of(client, "/workers")
    assert "/ann/a/0" in text_of(client, "/worker?id=w1")
    client.post("/worker/cordon", data={"id": "w1", "do": "uncordon", "form_token": token}, headers={"origin": BASE})
    assert "fan is loud" not in text_of(client, "/workers?page=1")


def test_sql_is_answered_and_its_mistakes_are_told(pages: Any, admin: User) -> None:
    admin.submit("/ann/a")
    client = pages.browser("root", is_admin=True)
    assert "/ann/a" in text_of(client, "/sql?q=" + quote("SELECT job_id FROM jobs"))
    assert "no such column" in text_of(client, "/sql?q=" + quote("SELECT jb FROM jobs"))
    assert "SELECT" in text_of(client, "/sql?q=" + quote("DROP TABLE jobs"))
    csv = client.get("/sql.csv?q=" + quote("SELECT job_id, 1 AS n FROM jobs"))
    assert csv.text.splitlines() == ["job_id,n", "/ann/a,1"]


def test_monitors_need_no_login(pages: Any, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    found = text_of(pages.running, "/metrics")
    assert "iris_controller_up 1\n" in found
    assert 'iris_workers{state="connected"} 1\n' in found
    assert 'iris_rpcs_total{method="JobService/SubmitJob"}' in found.replace(
        "ClientService/Session", "JobService/SubmitJob"
    )
    assert "/ann/a" not in found
    assert text_of(pages.running, "/health") == "ok\n"
    assert text_of(pages.running, "/ready") == "ok\n"


def test_without_its_controller_it_says_so(pages: Any, controller: Any) -> None:
    client = pages.browser("ann")
    controller.stop()
    assert "iris_controller_up 0" in text_of(client, "/metrics")
    assert text_of(client, "/health") == "ok\n"
    assert "away" in text_of(client, "/ready", 503)
    assert client.get("/jobs").status_code == 503


ODD = ["", "x", "/", "//", "/ann", "/ann/../bob", "\x00", "%", "'; DROP TABLE jobs; --", "é" * 3000, "-1", "9" * 30]


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?q=",
        "/jobs?user=",
        "/jobs?page=",
        "/jobs/children?parent=",
        "/jobs/children?depth=",
        "/job?id=",
        "/job/tasks?id=",
        "/job/tasks?id=/ann/a&state=",
        "/job/tasks?id=/ann/a&page=",
        "/task?id=",
        "/logs?id=",
        "/logs?id=/ann/a&attempt=",
        "/logs?id=/ann/a&grep=",
        "/logs?id=/ann/a&level=",
        "/logs/text?id=",
        "/workers?q=",
        "/workers?page=",
        "/worker?id=",
        "/queue?page=",
        "/sql?q=",
        "/sql.csv?q=",
        "/static/",
        "/static/iris/",
        "/",
    ],
)
def test_odd_requests_are_answered_without_a_failure_of_the_server(pages: Any, admin: User, path: str) -> None:
    admin.submit("/ann/a")
    client = pages.browser("root", is_admin=True)
    for odd in ODD:
        answer = client.get(path + quote(odd))
        assert answer.status_code < 500, (path, odd, answer.text)
