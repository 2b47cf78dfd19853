"""New lines in the log of an Iris job: each line once, whatever is asked for again."""

from collections.abc import Iterator, Sequence

from fray.backends.iris.output import NewLines
from iris.client import LogLine

T = 1_790_000_000_000
JOB = "/ann/a"


def line(text: str, at_ms: int, replica: int = 0, attempt: int = 0, **flags: bool) -> LogLine:
    return LogLine(f"{JOB}/{replica}", attempt, False, T + at_ms, text.encode(), **flags)


class Cluster:
    """Has a log, and says from when on it was asked for."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.asked: list[int] = []

    def read_logs(self, task_id: str, *, since: float) -> Iterator[LogLine]:
        assert task_id == JOB
        since_ms = round(since * 1000)
        self.asked.append(since_ms - T if since_ms else 0)
        yield from [item for item in self.lines if item.at_ms >= since_ms]


def taken(batches: Sequence[Sequence[LogLine]]) -> list[dict[int | None, str]]:
    cluster = Cluster()
    new = NewLines(cluster, JOB)
    found = []
    for batch in batches:
        cluster.lines = sorted([*cluster.lines, *batch], key=lambda item: item.at_ms)
        found.append(new.take())
    return found


def test_each_line_comes_once_with_its_replica() -> None:
    assert taken(
        [
            [line("a", 0), line("x", 1, replica=1)],
            [],
            [line("b", 1), line("same", 10_000), line("same", 10_000)],
            [line("same", 10_000), line("late", 9_000, replica=1)],
            [line("again", 20_000, attempt=1), line("ha", 20_001), line("lf", 20_002)],
        ]
    ) == [{0: "a\n", 1: "x\n"}, {}, {0: "b\nsame\nsame\n"}, {0: "same\n", 1: "late\n"}, {0: "again\nha\nlf\n"}]


def test_pieces_of_a_line_join_and_notes_say_whose_they_are() -> None:
    pieces = [line("10%", 0, partial=True), line(" 100%", 1), line("5 bytes lost", 2, note=True)]
    assert taken([pieces]) == [{0: "10% 100%\niris: 5 bytes lost\n"}]


def test_much_comes_in_pieces_and_what_is_left_at_the_end_is_told() -> None:
    cluster = Cluster()
    cluster.lines = [line(f"{number:03}", number) for number in range(8)]
    new = NewLines(cluster, JOB, most_bytes=10)
    assert [new.take(), new.take()] == [{0: "000\n001\n"}, {0: "002\n003\n"}]
    assert new.take(ended=True) == {0: "004\n005\n", None: "[truncated; for all of it: iris job logs /ann/a]\n"}
    cluster = Cluster()
    cluster.lines = [line("a", 0), line("b", 60_000)]
    new = NewLines(cluster, JOB)
    assert [new.take(), new.take()] == [{0: "a\nb\n"}, {}]
    assert cluster.asked == [0, 55_000], "what is old is not asked for again"
