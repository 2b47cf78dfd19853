"""Options that say nothing are told."""

import pytest

from iris.cli.job.unused import unused_option


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"health_interval"}, "--health-interval says nothing without --health-cmd CMD: give both, or neither"),
        ({"health_timeout", "memory"}, "--health-timeout says nothing without --health-cmd CMD: give both, or neither"),
        ({"health_retries"}, "--health-retries says nothing without --health-cmd CMD: give both, or neither"),
        ({"retry_window"}, "--retry-window says nothing without --max-retries N: give both, or neither"),
        ({"health_interval", "health_cmd"}, ""),
        ({"health_cmd"}, ""),
        ({"retry_window", "max_retries"}, ""),
        (set(), ""),
    ],
)
def test_an_option_without_the_one_that_it_is_of(given: set[str], said: str) -> None:
    assert unused_option(given) == said
