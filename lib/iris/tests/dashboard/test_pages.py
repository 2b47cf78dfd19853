"""The cluster's pages, beside a real controller: what they show, to whom, and what they refuse."""

import re
from html import unescape
from typing import Any
from urllib.parse import quote

from starlette.testclient import TestClient

from fray.testing.waiting import eventually
from iris.dashboard.cluster_client import viewer_of
from iris.rpc.generated import access_pb2
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode
from support.iris.controller import RunningController
from support.iris.users import User
from support.iris.worker import ScriptedWorker

from .conftest import BASE

RUNNING, FAILED = pb.TASK_STATE_RUNNING, pb.TASK_STATE_FAILED
T = 1_790_000_000_000
SCRIPT = "<script>alert(1)</script>"


def text_of(client: TestClient, path: str, status: int = 200, **headers: str) -> str:
    answer = client.get(path, headers=headers)
    assert answer.status_code == status, answer.text
    return unescape(answer.text)


def post(client: TestClient, path: str, of_page: str, *, origin: str = BASE, **form: str) -> tuple[int, str]:
    """Send a form as a page does that the client has; the status and the text of the answer."""
    found = re.search(r'data-form-token="([^"]+)"', text_of(client, of_page))
    assert found is not None
    answer = client.post(path, data={"form_token": found[1], **form}, headers={"origin": origin})
    return answer.status_code, answer.text


def test_nothing_is_shown_to_who_is_not_signed_in_and_a_link_is_good_once(pages: Any) -> None:
    for path in (
        "/jobs",
        "/job?id=/ann/a",
        "/logs?id=/ann/a",
        "/sql?q=SELECT+1",
        "/events",
        "/job/usage?id=/ann/a",
        "/task/usage?id=/ann/a/0",
    ):
        assert "Sign in" in text_of(pages.running, path, 401)
    client = pages.browser("ann")
    link = pages.app.state.web.login_path(viewer_of("ann", is_admin=False, may_write=False))
    assert client.get(link).status_code == 200
    assert "Signed in" in text_of(client, link), "whom it has signed in goes on"
    client.cookies.clear()
    assert "or already used" in text_of(client, link, 403)


def test_the_list_shows_roots_and_unfolds_and_finds(pages: Any, admin: User) -> None:
    admin.submit("/ann/train", description="the big one")
    admin.submit("/ann/train/child")
    admin.submit("/bob/other")
    client = pages.browser("root", is_admin=True)
    page = text_of(client, "/jobs")
    assert all(part in page for part in ("/ann/train", "/bob/other", "▸ 1"))
    assert "/ann/train/child" not in page
    assert "/ann/train/child" in text_of(client, "/jobs/children?parent=/ann/train&depth=1")
    assert "/ann/train/child" in text_of(client, "/jobs?q=CHILD")
    assert "/bob/other" not in text_of(client, "/jobs?user=ann")
    assert "big one" in text_of(client, "/jobs?q=big")
    assert "No job matches" in text_of(client, "/jobs?state=failed")
    assert "<html" not in text_of(client, "/jobs", **{"HX-Request": "true"})
    assert "is unknown; allowed are live" in text_of(client, "/jobs?state=odd", 400)


def test_of_many_children_the_failed_ones_come_first_and_all_are_found(
    pages: Any, admin: User, worker: ScriptedWorker
) -> None:
    admin.submit("/ann/p")
    admin.submit("/ann/p/bad")
    worker.wait_for_start("/ann/p/bad/0:0")
    worker.observe("/ann/p/bad/0:0", FAILED, exit_code=3)
    admin.wait("/ann/p/bad")
    for number in range(119):
        admin.submit(f"/ann/p/c{number}")
    admin.submit("/ann/p/c0/below")
    client = pages.browser("ann")
    counts = 'href="/jobs?parent=/ann/p&state=failed">1 failed</a>'
    for path in ("/jobs", "/job?id=/ann/p"):
        assert counts in text_of(client, path), path
    children = text_of(client, "/jobs/children?parent=/ann/p&depth=1")
    assert "100 of 120 child jobs are shown" in children
    jobs = [re.findall(r'data-job="/ann/(.+?)"', text_of(client, f"/jobs?parent=/ann/p&page={i}")) for i in (1, 2, 3)]
    assert [(len(each), each[0]) for each in jobs] == [(50, "p/bad"), (50, "p/c69"), (20, "p/c19")]
    for path, names in (
        ("/jobs?parent=/ann/p&state=failed", ["p/bad"]),
        ("/jobs?parent=/ann/p&q=below", ["p/c0/below"]),
        ("/jobs?state=failed+child+jobs", ["p"]),
    ):
        assert re.findall(r'data-job="/ann/(.+?)"', text_of(client, path)) == names, path


def test_a_job_shows_why_it_waits_or_failed_and_its_attempts(pages: Any, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a", max_retries_failure=1)
    for number, lasted in enumerate((2000, 4000)):
        name, begin = f"/ann/a/0:{number}", T + 10_000 * number
        worker.wait_for_start(name)
        worker.observe(name, RUNNING, started_at_ms=begin, at_ms=begin)
        eventually(lambda: admin.task("/ann/a/0").state == RUNNING, "it runs")
        # Another viewer each time, for whom no answers are kept.
        fresh = text_of(pages.browser(f"root{number}", is_admin=True), "/job/tasks?id=/ann/a")
        assert (">running<" in fresh, "cores now" in fresh) == (True, False), "an earlier attempt's is no use of now"
        for second in (1, 2):
            use = pb.AttemptUsage(attempt_id=name, cpu_ms=second, memory_bytes=2**21, at_ms=begin + 500 * second)
            worker.send(pb.WorkerMessage(usage=[use]))
        used = pb.AttemptUsage(attempt_id=name, cpu_ms=5, at_ms=begin + lasted)
        data = encode(False, begin, b"begun") + encode(False, begin, b"out ", partial=True)
        data += encode(True, begin, b"the end") + encode(False, begin, b"of luck") + encode(False, begin, b" ")
        worker.append_log(name, 0, data)
        worker.wait_for_log_ack(name, len(data))
        worker.observe(
            name, FAILED, exit_code=3, error="out of luck", at_ms=begin + lasted, usage=used, log_size=len(data)
        )
    admin.wait("/ann/a")
    admin.submit("/ann/large", replicas=3)  # of two cores
    worker.wait_for_start("/ann/large/1:0")
    client = pages.browser("ann")
    jobs = text_of(client, "/jobs")
    assert ("0 of 3 · 1 pending" in jobs, "needs 1 core; worker" in jobs) == (True, True)
    page = text_of(client, "/job?id=/ann/a")
    for part in (
        'aria-label="Failure"',
        "out of luck",
        "exit code 3",
        "/logs?id=%2Fann%2Fa%2F0&attempt=1#L3",
        "Open the log at line 3<",
        "begun\nthe end\nout of luck</pre>",
    ):
        assert part in page, part
    overview = text_of(client, "/cluster")
    assert re.findall(r'<a class="last-line" href="(.*?)".*?>(.*?)</a>', overview) == [
        ("/logs?id=%2Fann%2Fa%2F0&attempt=1#L3", "out of luck")
    ]
    tasks = text_of(client, "/job/tasks?id=/ann/a")
    for part in ("attempt 0, 2.0 s: out of luck", 'class="fill-earlier" x="', "exit code 3"):
        assert part in tasks, part
    worker.observe("/ann/large/1:0", RUNNING)
    eventually(lambda: "running" in text_of(client, "/job/tasks?id=/ann/large"), "one of three runs")
    assert re.findall(r'aria-label="Log of task (\d)"', text_of(client, "/job/tasks?id=/ann/large")) == ["1"]
    assert "place 1 of 1 in the queue" in text_of(client, "/job?id=/ann/large")
    assert "/ann/large" in text_of(client, "/queue")
    last, first = text_of(client, "/task?id=/ann/a/0").split("<tbody>")[1].split("</tr>")[:2]
    assert ("out of luck" in last, "4.0 s" in last, "2.0 s" in first) == (True, True, True)
    assert ("2 MiB" in last, 'data-usage="/task/usage?id=/ann/a/0"' in page) == (True, True)
    assert '"cpu_asked": [1.0, ' in text_of(client, "/task/usage?id=/ann/a/0"), "an ended task has a chart, too"
    assert "out of luck" not in text_of(pages.browser("bob"), "/cluster"), "of others only the state is shown"


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
        assert f"Your login's token {lost}, was revoked." in page
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
    for odd in ("/jobs?q=", "/jobs?state=", "/sql?q=", "/x"):
        assert SCRIPT not in client.get(odd + quote(SCRIPT)).text


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
    some = text_of(client, "/logs?id=/ann/a&grep=line+4%5B0-3%5D")
    assert re.findall(r">line (\d+)<", some) == ["40", "41", "42", "43"]
    assert text_of(client, "/logs/text?id=/ann/a") == "".join(f"line {i}\n" for i in range(50))
    assert "regular expression" in text_of(client, "/logs?id=/ann/a&grep=%28", 400)
    for attempt in ("9999999999", "x", "-1"):
        assert "number of an attempt" in text_of(client, f"/logs?id=/ann/a&attempt={attempt}", 400)
    for asked, numbers in (
        ("attempt=0&from=49", [(49, 48), (50, 49)]),
        ("attempt=0&from=51", []),
        ("have=48", [(0, 0), (0, 1)]),
        ("have=20001", []),
    ):
        lines = client.get(f"/logs/lines?id=/ann/a/0&{asked}").json()
        assert [(line["n"], int(line["text"].split()[1])) for line in lines] == numbers, asked
    # The page has all lines: of those that follow none is told again.
    (address,) = re.findall(r'data-follow="([^"]+)"', page)
    assert "event: lines" not in text_of(client, address)
    again = text_of(client, "/logs/follow?id=/ann/a", **{"last-event-id": f"{T + 15}-2"})
    assert re.findall(r"line (\d+)", again) == ["47", "48", "49"]
    assert "event: end" in again


def test_stopping_needs_a_link_that_allows_it_and_a_form_of_the_session(pages: Any, admin: User) -> None:
    admin.submit("/ann/a")
    page, form = "/job?id=/ann/a", {"id": "/ann/a"}
    reader = pages.browser("ann")
    assert "Stop job" not in text_of(reader, page)
    assert post(reader, "/job/stop", page, **form)[0] == 403
    writer = pages.browser("ann", may_write=True)
    assert post(writer, "/job/stop", page, **form, origin="http://evil.example")[0] == 403
    assert writer.post("/job/stop", data=form, headers={"origin": BASE}).status_code == 403
    assert admin.get("/ann/a").state == pb.JOB_STATE_PENDING
    assert post(writer, "/job/stop", page, **form)[0] == 200
    assert admin.get("/ann/a").state == pb.JOB_STATE_KILLED
    assert "stopped by ann in the dashboard" in admin.get("/ann/a").error
    assert post(pages.browser("ann"), "/job/retry", page, **form)[0] == 403
    assert post(pages.browser("ann", may_write=True), "/job/retry", page, **form)[0] == 200
    assert admin.get("/ann/a").state == pb.JOB_STATE_PENDING


def test_workers_are_cordoned_by_admins_alone(pages: Any, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    form = {"id": "w1", "do": "cordon", "reason": "fan is loud"}
    status, text = post(pages.browser("ann", may_write=True), "/worker/cordon", "/workers", **form)
    assert (status, "may not cordon workers" in text) == (403, True)
    client = pages.browser("root", is_admin=True, may_write=True)
    post(client, "/worker/cordon", "/workers", **form)
    assert "fan is loud" in text_of(client, "/workers")
    overview = text_of(client, "/cluster?span=month")
    assert all(part in overview for part in ("1 of 2 promised, 0 used", "No use has been recorded", "No pending jobs"))
    assert "/ann/a/0" in text_of(client, "/worker?id=w1")
    post(client, "/worker/cordon", "/workers", id="w1", do="uncordon")
    assert "fan is loud" not in text_of(client, "/workers?page=1")


def test_sql_is_answered_and_its_mistakes_are_told(pages: Any, admin: User) -> None:
    admin.submit("/ann/a")
    client = pages.browser("root", is_admin=True)
    assert "/ann/a" in text_of(client, "/sql?q=" + quote("SELECT job_id FROM jobs"))
    assert "no such column" in text_of(client, "/sql?q=" + quote("SELECT jb FROM jobs"))
    assert "SELECT" in text_of(client, "/sql?q=" + quote("DROP TABLE jobs"))
    csv = client.get("/sql.csv?q=" + quote("SELECT job_id, 1 AS n FROM jobs"))
    assert csv.text.splitlines() == ["job_id,n", "/ann/a,1"]
    csv = client.get("/sql.csv?q=" + quote("SELECT '=1+1' AS \"@n\", -1 AS n"))
    assert csv.text.splitlines() == ["'@n,n", "'=1+1,-1"], "no cell is a formula"
    csv = client.get("/sql.csv?q=" + quote("SELECT 1 FROM states a, states b, states c, states d, states e"))
    assert "INCOMPLETE: only the first 100000 rows" in csv.text.splitlines()[-1]


def test_monitors_need_no_login(pages: Any, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    found = text_of(pages.running, "/metrics")
    assert "iris_controller_up 1\n" in found
    assert 'iris_workers{state="connected"} 1\n' in found
    assert re.search(r'iris_rpcs_total{method="(ClientService/Session|JobService/SubmitJob)"}', found)
    assert "/ann/a" not in found
    assert text_of(pages.running, "/health") == text_of(pages.running, "/ready") == "ok\n"


def test_without_its_controller_it_says_so(pages: Any, controller: RunningController) -> None:
    client = pages.browser("ann")
    controller.stop()
    assert "iris_controller_up 0" in text_of(client, "/metrics")
    assert text_of(client, "/health") == "ok\n"
    assert "away" in text_of(client, "/ready", 503)
    assert client.get("/jobs").status_code == 503
