"""The page of a log in a real browser: following, searches, numbers of lines, older lines, colours."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode
from support.iris.controller import RunningController
from support.iris.users import User
from support.iris.worker import ScriptedWorker
from support.rigging.chromium import chromium_path

pytest.importorskip("playwright")
from playwright.sync_api import Page, expect

from .served import Served, T, write_log

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(chromium_path() is None, reason="chromium is not installed: apt-get install chromium"),
]


@pytest.fixture
def served(controller: RunningController) -> Iterator[Served]:
    served = Served(controller)
    yield served
    served.stop()


def test_a_log_is_followed_searched_and_ends(served: Served, page: Page, admin: User, worker: ScriptedWorker) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    end = write_log(worker, "/ann/a/0:0", 0, "first")
    served.sign_in(page)
    served.goto(page, "logs?id=/ann/a")
    expect(page.locator("#log")).to_have_attribute("data-connected", "true")
    end = write_log(worker, "/ann/a/0:0", end, "<script>alert(1)</script>", "third")
    expect(page.locator("#log .text")).to_have_text(["first", "<script>alert(1)</script>", "third"])
    served.stop()
    expect(page.locator("#connection")).to_contain_text("Connection lost")
    end = write_log(worker, "/ann/a/0:0", end, "meanwhile")
    served.start(served.port)
    expect(page.locator("#log .text")).to_have_text(["first", "<script>alert(1)</script>", "third", "meanwhile"])
    worker.observe("/ann/a/0:0", pb.TASK_STATE_SUCCEEDED, log_size=end)
    expect(page.locator("#log-state")).to_have_text("The log is complete.")
    expect(page.locator("#state")).to_have_text("succeeded")
    page.get_by_label("Regular expression").fill("^t|mean")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#log .text")).to_have_text(["third", "meanwhile"])


def test_a_log_has_numbers_with_permalinks_and_its_older_lines_come_on_scrolling_up(
    served: Served, page: Page, admin: User, worker: ScriptedWorker
) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    end = 0
    for begin in range(0, 12_000, 3000):
        end = write_log(worker, "/ann/a/0:0", end, *(f"line {i + 1}" for i in range(begin, begin + 3000)))
    served.sign_in(page)
    served.goto(page, "logs?id=/ann/a")
    first = page.locator("#log [data-n]").first
    expect(first).to_have_attribute("data-n", "11001")
    page.locator("#log").evaluate("log => log.scrollTop = 0")
    expect(first).to_have_attribute("data-n", "10001")
    served.goto(page, "logs?id=/ann/a&attempt=0#L1234")
    expect(page.locator("#log .hit .text")).to_have_text("line 1234")
    expect(page.locator("#log .hit")).to_be_in_viewport()
    # What is new comes where the reader scrolls to, without a gap.
    write_log(worker, "/ann/a/0:0", end, "the last")
    page.get_by_role("button", name="Last line").click()
    expect(page.locator("#log .text").last).to_have_text("the last")
    expect(page.locator("#log > div").last).to_have_attribute("data-n", "12001")
    page.locator("#log .n").last.click()
    expect(page).to_have_url(re.compile(r"attempt=0#L12001$"))


def test_each_row_of_two_streams_has_its_own_number(
    served: Served, page: Page, admin: User, worker: ScriptedWorker
) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    records = [(False, "begun", True), (True, "error 1", False), (True, "50 %", True), (False, ", ended", False)]
    records += [(False, "third", False), (True, " 90 %", True)]
    size = 0
    served.sign_in(page)

    def write(some: list[tuple[bool, str, bool]]) -> None:
        nonlocal size
        data = b"".join(encode(is_err, T, text.encode(), partial=partial) for is_err, text, partial in some)
        worker.append_log("/ann/a/0:0", size, data)
        size += len(data)
        worker.wait_for_log_ack("/ann/a/0:0", size)

    def rows() -> list[str]:
        return page.locator("#log > div").evaluate_all(
            "rows => rows.map(row => (row.dataset.n || '-') + ' ' + row.querySelector('.text').textContent)"
        )

    # Written by the server, by the stream, and loaded from a number on.
    write(records[:3])
    served.goto(page, "logs?id=/ann/a&attempt=0")
    expect(page.locator("#log")).to_have_attribute("data-connected", "true")
    assert rows() == ["1 error 1", "- begun", "- 50 %"]
    write(records[3:])
    whole = ["1 error 1", "2 begun, ended", "3 third", "- 50 % 90 %"]
    expect(page.locator("#log .text").last).to_have_text("50 % 90 %")
    assert rows() == whole
    page.reload()
    expect(page.locator("#log .text").last).to_have_text("50 % 90 %")
    assert rows() == whole
    write([(True, " done", False), (True, "fifth", False)])
    expect(page.locator("#log .text").last).to_have_text("fifth")
    assert rows() == [*whole[:3], "4 50 % 90 % done", "5 fifth"]
    served.goto(page, "logs?id=/ann/a&attempt=0#L4")
    expect(page.locator("#log .hit .text")).to_have_text("50 % 90 % done")


def test_a_log_has_colours_and_lines_written_again_and_says_that_its_reader_is_signed_out(
    served: Served, page: Page, admin: User, worker: ScriptedWorker
) -> None:
    admin.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    bar = [encode(False, T, f"\r<b>{i}</b> %".encode(), partial=i < 9) for i in (1, 5, 9)]
    data = encode(False, T, b"\x1b[31mred\x1b[0m plain\x1b[K") + bar[0]
    worker.append_log("/ann/a/0:0", 0, data)
    worker.wait_for_log_ack("/ann/a/0:0", len(data))
    served.sign_in(page)
    served.goto(page, "logs?id=/ann/a")
    expect(page.locator("#log .text")).to_have_text(["red plain", "<b>1</b> %"])
    expect(page.locator("#log .ansi-1")).to_have_text("red")
    expect(page.locator("#log")).to_have_attribute("data-connected", "true")
    worker.append_log("/ann/a/0:0", len(data), bar[1] + bar[2])
    worker.wait_for_log_ack("/ann/a/0:0", len(data + bar[1] + bar[2]))
    expect(page.locator("#log .text")).to_have_text(["red plain", "<b>9</b> %"])
    page.context.clear_cookies()
    served.stop()
    served.start(served.port)
    expect(page.locator("#connection")).to_contain_text("Signed out")
    page.locator("#connection").get_by_role("link", name="Sign in").click()
    expect(page.locator("h1")).to_have_text("Sign in")
