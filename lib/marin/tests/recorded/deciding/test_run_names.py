import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.recorded.deciding.log_cursor import LogCursor
from marin.recorded.deciding.run_names import find_run, runs_of
from marin.recorded.deciding.run_summary import EventsRead, ProcessState, RunState, info_head, summarize
from marin.recorded.deciding.step_names import digits_of, outputs_named, split_word, stem_of
from rigging.errors import NotFound

A = "train-0a1b2c-20231114T010000.000000Z-4"
B = "train-0a1b2c-20231114T020000.000000Z-5"
C = "train-ffffff-20231113T020000.000000Z-5"
RUNS = runs_of(
    ["train-0a1b2c.json", f"{A}.events.jsonl", f"{B}.events.jsonl", f"{C}.events.jsonl", "x.json", "eval-000000.json"]
)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        (A, A),
        ("train-0a1b2c", B),  # the newest of equal steps
        ("train-0a1b2c.json", B),
        ("train-0a1b2c-20231114T01", A),
        (f"gs://bucket/experiments/{A}.events.jsonl", A),
        ("ev", "eval-000000"),
    ],
)
def test_a_word_means_a_run(word: str, meant: str) -> None:
    assert find_run(RUNS, word, "here").id == meant


def test_the_newest_of_runs_of_different_steps_is_meant_and_the_others_are_told() -> None:
    assert [run.id for run in RUNS] == [B, A, C, "eval-000000"], "newest first, and those without a time last"
    assert [run.info for run in RUNS] == ["train-0a1b2c.json", "train-0a1b2c.json", None, "eval-000000.json"]
    told: list[str] = []
    assert find_run(RUNS, "train", "here", told.append).id == B
    assert told == [f"{B} is the newest of the runs that begin with 'train'; with other steps: train-ffffff"]
    with pytest.raises(NotFound, match="did you mean eval-000000"):
        find_run(RUNS, "evil-000000", "here")


@given(st.lists(st.text(max_size=60), max_size=20))
def test_other_files_are_no_runs_and_do_no_harm(names: list[str]) -> None:
    assert runs_of([name for name in names if not name.endswith((".json", ".jsonl"))]) == []
    runs_of([f"{name}-0a1b2c-20239999T999999.000000Z-1.events.jsonl" for name in names])


@given(st.binary(max_size=400), st.binary(max_size=400), st.booleans(), st.sampled_from(ProcessState))
def test_any_event_log_gives_a_state(head: bytes, tail: bytes, is_whole: bool, process: ProcessState) -> None:
    summary = summarize(RUNS[0], EventsRead(head, tail, is_whole), info_head(head), process, None)
    assert summary.state in (RunState.RUNNING, RunState.DIED, RunState.UNFINISHED)


def test_a_run_whose_end_was_read_but_not_its_steps_only_ended() -> None:
    tail = b'{"event": "run_ended", "seconds": 1.0, "error": null}\n'
    for is_whole, state in ((False, RunState.ENDED), (True, RunState.SUCCEEDED)):
        events = EventsRead(tail, tail, is_whole)
        assert summarize(RUNS[0], events, None, ProcessState.GONE, None).state is state


def test_what_a_later_run_wrote_is_not_said_of_an_earlier_one() -> None:
    head = {"worker_id": "host-name-5-77", "user": "ada", "git_commit": "c0ffee"}
    later, earlier = (summarize(run, None, head, ProcessState.UNKNOWN, None) for run in RUNS[:2])
    assert (later.user, later.git_commit, later.host) == ("ada", "c0ffee", "host-name")
    assert (earlier.user, earlier.git_commit, earlier.host) == (None, None, None)


def test_words_for_steps() -> None:
    assert split_word("a/b-1", "/root") == ("/root/a", "b-1")
    assert split_word("b", "/root") == ("/root", "b")
    assert split_word("gs://bucket/a/b/", "/root") == ("gs://bucket/a", "b")
    names = ("a-0a1b2c", "a_0a1b2c3d", "a-0a1b2c@fix-c0ffee", "a-c0ffee-0a1b2c", "a-xyz")
    assert [stem_of(name) for name in names] == ["a", "a", "a", "a-c0ffee", None]
    assert [digits_of(name) for name in names] == ["0a1b2c", "", "0a1b2c", "0a1b2c", ""]
    assert outputs_named("a", ["a-000002", "a-000001", "ab-000001"]) == ["a-000001", "a-000002"]
    assert outputs_named("a", ["a", "a-000001"]) == ["a"]


@given(st.text(), st.lists(st.integers(min_value=0, max_value=60), max_size=6))
def test_a_log_read_in_pieces_is_the_log(text: str, cuts: list[int]) -> None:
    content = text.encode("utf-8", "replace")
    cursor = LogCursor(None)
    read = ""
    for size in [*sorted(min(cut, len(content)) for cut in cuts), len(content)]:
        read += cursor.take(content[cursor.begin(size) : size])
    assert read == content.decode()
