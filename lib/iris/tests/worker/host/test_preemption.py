"""What Compute Engine's metadata server says of its host, from one on loopback that speaks as that does."""

import threading

import pytest

from iris.worker.host.preemption import GceHost, announces_end
from rigging.gce_metadata import Metadata
from support.google.metadata import MAINTENANCE, NO_MAINTENANCE, MetadataServer

LONG = 30.0
BEGINS = 1_796_151_601
"""When the window of MAINTENANCE begins."""


@pytest.mark.parametrize(
    ("key", "value", "before_s", "is_end"),
    [
        ("preempted", "FALSE", 0, False),
        ("maintenance-event", "NONE", 0, False),
        ("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE", 0, False),
        ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", 0, True),
        ("upcoming-maintenance", NO_MAINTENANCE, 0, False),
        ("upcoming-maintenance", MAINTENANCE, 301, False),
        ("upcoming-maintenance", MAINTENANCE, 300, True),
        ("upcoming-maintenance", MAINTENANCE.replace("PENDING", "ONGOING"), 9999, True),
        ("upcoming-maintenance", "[]", 0, False),
    ],
)
def test_what_ends_a_host(key: str, value: str, before_s: float, is_end: bool) -> None:
    assert announces_end(key, value, BEGINS - before_s) is is_end


def test_the_notice_is_pushed_though_the_server_was_away_and_one_that_came_before_the_watch_is_heard() -> None:
    with MetadataServer() as server:
        host = GceHost(server.address)
        told = threading.Thread(target=host.wait_until_ended, args=["preempted"], daemon=True)
        told.start()
        server.wait_for_watchers(1)
        server.break_off()
        server.wait_for_watchers(2)
        assert told.is_alive()
        assert not host.is_preempted()
        server.preempt()
        told.join(LONG)
        assert not told.is_alive()
        assert host.is_preempted()
        host.wait_until_ended("preempted")
        assert not server.refused


def test_only_a_metadata_server_is_believed() -> None:
    with MetadataServer(flavor="Proxy") as server:
        server.preempt()
        assert not GceHost(server.address).is_preempted()
    assert not GceHost("127.0.0.1:9").is_preempted()


class TestHowItIsAsked:
    """The server and the clock are played."""

    @pytest.fixture
    def asked(self) -> list[tuple[str, float]]:
        """The questions; `answers` says what comes, and how long that takes."""
        self.answers: list[tuple[float, str | OSError]] = []
        self.now, self.slept = 0.0, list[float]()
        asked: list[tuple[str, float]] = []

        def ask(server: str, key: str, timeout_s: float) -> Metadata:
            assert server == "meta:1"
            asked.append((key, timeout_s))
            seconds, answer = self.answers.pop(0)
            self.now += seconds
            if isinstance(answer, OSError):
                raise answer
            return Metadata(answer, f"tag{len(asked)}")

        self.host = GceHost("meta:1", ask, lambda: self.now, self.slept.append, lambda: BEGINS - 300)
        return asked

    def test_after_the_first_answer_only_changes_of_that_are_waited_for(self, asked: list[tuple[str, float]]) -> None:
        self.answers = [(0, "FALSE"), (300, "FALSE"), (20, "true")]
        self.host.wait_until_ended("preempted")
        assert asked == [
            ("preempted", 301.5),
            ("preempted?wait_for_change=true&timeout_sec=300&last_etag=tag1", 301.5),
            ("preempted?wait_for_change=true&timeout_sec=300&last_etag=tag2", 301.5),
        ]

    def test_who_is_mute_is_asked_less(self, asked: list[tuple[str, float]], caplog: pytest.LogCaptureFixture) -> None:
        silent = OSError("nobody is there")
        self.answers = [*[(0, silent)] * 9, (0, "FALSE"), (0, silent), (2, "FALSE"), (0, "TRUE")]
        self.host.wait_until_ended("preempted")
        assert caplog.text.count("cannot determine whether this host is being preempted: nobody is there") == 2
        first, *later = self.slept
        assert first < 0.1
        assert 5 < later[7] < 11
        assert self.slept[-1] < 0.1, "the server waited, as it was asked to"

    def test_a_single_question_is_short(self, asked: list[tuple[str, float]]) -> None:
        self.answers = [(0, "TRUE"), (0, "FALSE"), (0, OSError("none"))]
        assert [self.host.is_preempted() for _ in range(3)] == [True, False, False]
        assert asked == [("preempted", 1.5)] * 3

    def test_nothing_starts_while_the_host_ends(self, asked: list[tuple[str, float]]) -> None:
        none = (0, "NONE"), (0, OSError("answered 503"))
        self.answers = [(0, "TRUE"), (0, "FALSE"), (0, "TERMINATE_ON_HOST_MAINTENANCE"), (0, "FALSE"), *none]
        self.host.wait_while_ending()
        assert self.slept == [5, 5]

    def test_maintenance_is_looked_for_each_minute(self, asked: list[tuple[str, float]]) -> None:
        self.answers = [(0, OSError("answered 503")), (0, NO_MAINTENANCE), (0, MAINTENANCE)]
        self.host.wait_until_ended("upcoming-maintenance")
        assert (asked, self.slept) == ([("upcoming-maintenance?alt=json", 1.5)] * 3, [60, 60])
