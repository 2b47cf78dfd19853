import math

import pytest

from rigging.errors import InvalidRequest
from rigging.text.quantities import MAX_SECONDS, check_count, check_seconds, check_unit, format_size, parse_size


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("9" * 400, r"memory '9{40}' is not a size: it must be below 8192p"),
        (2**63, "must be below 8192p"),
        (10**400, "must be below 8192p"),
        ("8192p", "must be below 8192p"),
        ("-1GB", "memory '-1GB' is not a size; write a number with a unit"),
        ("", "memory '' is not a size"),
        ("GB", "memory 'GB' is not a size"),
        ("1XB", "memory '1XB' is not a size"),
        (True, "memory True is not a size"),
        (-1, "memory -1 is below 0"),
        ("\u06f5GB", "is not a size"),  # digits of another script
    ],
)
def test_what_is_no_size_is_refused_in_words(given: str | int, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        parse_size(given, "memory")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("2", "memory '2' is 2 bytes, below the minimum of 1MB; write a unit, e.g. '2GB'"),
        (4, "memory '4' is 4 bytes, below the minimum of 1MB; write a unit, e.g. '4GB'"),
        ("512", "e.g. '512MB'"),
        ("4k", "memory '4k' is 4096 bytes, below the minimum of 1MB; write a unit, e.g. '64MB'"),
        ("1048575", "e.g. '64MB'"),
    ],
)
def test_less_than_a_megabyte_lacks_its_unit(given: str | int, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_unit(given, "memory")
    assert hint in str(refused.value)
    assert check_unit("1MB", "memory") == check_unit(2**20, "memory") == 2**20
    assert check_unit(0, "disk") == 0


@pytest.mark.parametrize("given", [math.nan, math.inf, -5, 1e18, True, "5"])
def test_seconds_are_a_number_that_fits(given: float) -> None:
    with pytest.raises(InvalidRequest, match="timeout must be a number of seconds above 0, at most 3153600000, not"):
        check_seconds(given, "timeout")
    assert check_seconds(MAX_SECONDS, "timeout") == MAX_SECONDS
    with pytest.raises(InvalidRequest, match="above 0"):
        check_seconds(0, "timeout")
    assert check_seconds(0, "since", zero=True) == 0


@pytest.mark.parametrize("given", [-1, 2**31, 1.5, True])
def test_counts_are_whole_numbers_that_fit(given: int) -> None:
    with pytest.raises(InvalidRequest, match="limit must be a whole number from 0 to 2147483647, not"):
        check_count(given, "limit")
    assert check_count(2**31 - 1, "limit") == 2**31 - 1


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (150 * 2**10, "150 KiB"),
        (1023 * 2**20, "1023 MiB"),
        (2**30, "1 GiB"),
        (5 * 2**40, "5 TiB"),
        (2000 * 2**40, "2000 TiB"),
    ],
)
def test_sizes_for_people_have_the_nearest_unit(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GB", 2**30), ("1g", 2**30), ("1GiB", 2**30), ("1.5 MB", 3 * 2**19), ("512", 512), (7, 7),
     ("8191p", 8191 * 2**50), (2**62, 2**62)],
)  # fmt: skip
def test_sizes_are_powers_of_1024_in_every_spelling(text: str | int, size: int) -> None:
    assert parse_size(text) == size
