import threading

import pytest

from rigging.process.parallel import map_in_threads


def test_calls_overlap_and_their_results_are_in_the_order_of_the_items() -> None:
    together = threading.Barrier(3, timeout=20)

    def call(item: int) -> tuple[int, bool]:
        together.wait()
        return item, threading.current_thread() is threading.main_thread()

    assert map_in_threads(call, [3, 1, 2]) == [(3, False), (1, False), (2, False)]


def test_few_items_need_no_thread_and_no_more_run_at_once_than_allowed() -> None:
    assert map_in_threads(lambda _: threading.current_thread(), ["x"]) == [threading.current_thread()]
    assert map_in_threads(lambda _: 1 / 0, []) == []
    assert len(set(map_in_threads(lambda _: threading.get_ident(), range(20), most=1))) == 1


def test_the_first_failure_in_order_is_raised() -> None:
    with pytest.raises(KeyError, match="b"):
        map_in_threads({"a": 1}.__getitem__, ["a", "b", "c"])
