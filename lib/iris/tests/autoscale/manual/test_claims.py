from dataclasses import replace
from pathlib import Path

import pytest

from iris.autoscale.manual.claims import FREE, Claim, Look, Works, choose, slices_in, split_address, troubles, unlisted
from iris.autoscale.manual.former import FormerHosts, targets_of
from iris.autoscale.manual.scripts import Boot, HostSettings, fields_of, worker_words
from iris.autoscale.model import Answer, Outcome
from iris.autoscale.port import Phase, SliceOrder
from iris.autoscale.rules import Platform
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ManualTemplate, ScaleGroup
from rigging.errors import InvalidRequest

OURS = "ours-1"
GROUP = ScaleGroup("pair", Resources(), 2, template=ManualTemplate(("a", "b", "c", "d", "odd")))
AWAY = Answer(Outcome.UNKNOWN, "a is out of reach: no answer")


def look(phase: str = "started", number: int = 0, words: str = "", *, owner: str = OURS) -> Look:
    return Look(Claim(owner, "s-0", "pair", number, 2), phase, words, phase == "started")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("h", ("h", 22)),
        ("10.0.0.1:2222", ("10.0.0.1", 2222)),
        ("[fe80::1]:2222", ("fe80::1", 2222)),
        ("fe80::1", ("fe80::1", 22)),
    ],
)
def test_an_address_may_have_a_port(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address, 22) == expected


@pytest.mark.parametrize(
    ("changes", "away", "taken", "avoid", "failures", "expected"),
    [
        ({}, {}, (), (), {}, ("a", "b")),
        ({"b": look()}, {}, (), (), {}, ("c", "d")),
        ({}, {"a": AWAY}, (), (), {}, ("c", "d")),
        ({}, {}, ("b",), (), {}, ("c", "d")),
        ({}, {}, (), ("a",), {}, ("c", "d")),
        ({}, {}, (), (), {"b": 1}, ("c", "d")),
        ({}, {}, (), (), {"b": 1, "c": 2}, ("a", "b")),
        ({}, {}, (), ("c",), {"b": 1}, ("a", "b")),
        ({"b": look()}, {}, ("c",), (), {}, "no hosts are free: others serve slices of this cluster"),
        ({"c": look(owner="x-2")}, {"a": AWAY}, (), (), {}, f"{AWAY.words}; c serves another cluster, x-2 (slice s-0)"),
        ({"b": look()}, {}, (), ("d",), {}, "d is not tried yet, because slices on it failed"),
    ],
)
def test_hosts_in_turn_that_are_all_free_are_chosen(
    changes: dict[str, Look],
    away: dict[str, Answer],
    taken: tuple[str, ...],
    avoid: tuple[str, ...],
    failures: dict[str, int],
    expected: str | tuple[str, ...],
) -> None:
    looks = dict.fromkeys("abcd", FREE) | changes
    found = choose(GROUP, OURS, looks, away, taken, avoid, failures)
    if isinstance(found, Answer):
        assert found.outcome is Outcome.STOCK_OUT
        assert isinstance(expected, str)
        assert expected in found.words
    else:
        assert found == expected


BOTH = {"a": look(), "b": look(number=1), "c": FREE, "d": FREE, "odd": FREE}


@pytest.mark.parametrize(
    ("changes", "works", "phase", "words", "lost"),
    [
        ({}, Works(), Phase.READY, "", ()),
        ({"b": look("installing", 1)}, Works(), Phase.CREATING, "", ()),
        ({"b": look("ended", 1, "1 no memory")}, Works(), Phase.CREATING, "b: ended 1 no memory", ()),
        ({"b": look("failed", 1, "2 no python")}, Works(), Phase.BROKEN, "b: installing iris failed with code 2", (1,)),
        ({"b": look("claimed", 1)}, Works(), Phase.BROKEN, "b: its start was interrupted", (1,)),
        ({"b": look("claimed", 1)}, Works(starting=["s-0"]), Phase.CREATING, "", ()),
        ({"b": FREE}, Works(), Phase.BROKEN, "host 1 of 2 does not serve it", (1,)),
        ({"b": FREE}, Works(starting=["s-0"]), Phase.CREATING, "", ()),
        ({"a": FREE, "x": look()}, Works(), Phase.BROKEN, "x is no longer in the cluster file", (0,)),
        ({"a": look("stopping")}, Works(), Phase.DELETING, "", ()),
        ({}, Works(deleting=["s-0"]), Phase.DELETING, "", ()),
        ({}, Works(failed={"s-0": {0: AWAY}}), Phase.BROKEN, AWAY.words, (0,)),
    ],
)
def test_a_slice_is_what_its_hosts_say(
    changes: dict[str, Look], works: Works, phase: Phase, words: str, lost: tuple[int, ...]
) -> None:
    found = slices_in(OURS, BOTH | changes, {}, {"pair": GROUP}, works)["s-0"]
    assert (found.group, found.phase, found.hosts_lost) == ("pair", phase, lost)
    assert words in found.words if words else not found.words


def test_a_host_that_nobody_has_seen_says_nothing_of_its_slice() -> None:
    looks, away = {host: BOTH[host] for host in "acd"} | {"odd": FREE}, {"b": replace(AWAY, words="b is away")}
    assert slices_in(OURS, looks, away, {"pair": GROUP}, Works())["s-0"].phase is Phase.CREATING
    assert unlisted([GROUP], looks, away)["pair"].words == "waiting for hosts: b is away"
    assert unlisted([GROUP], BOTH, away) == {}
    assert troubles([GROUP], away) == {"pair": "b is away"}
    assert troubles([GROUP], dict.fromkeys("abcd", AWAY) | {"odd": AWAY})["pair"].endswith("(and 1 more hosts)")


@pytest.mark.parametrize(
    ("words", "hosts", "outcome"),
    [
        ("2 error: No interpreter found for Python >=3.11", "ab", Outcome.CONFIG),
        ("2 error: No space left on device (os error 28)", "ab", Outcome.CONFIG),
        ("1 error: Failed to fetch: dns error", "ab", Outcome.UNKNOWN),
        ("2 error: No space left on device (os error 28)", "abcd", Outcome.UNKNOWN),
    ],
)
def test_a_mistake_closes_the_group_only_if_it_has_no_other_hosts(words: str, hosts: str, outcome: Outcome) -> None:
    group = replace(GROUP, template=ManualTemplate(tuple(hosts)))
    looks = BOTH | {"a": look("failed", 0, words)}
    assert slices_in(OURS, looks, {}, {"pair": group}, Works())["s-0"].outcome is outcome


def test_a_worker_is_started_as_a_host_of_its_slice() -> None:
    host = Resources(4000, 2**30, 2**33, Device("gpu", "H100", 8))
    group = replace(GROUP, host=host, zone="z", region="r", attributes=(("rack", "7"),))
    claim, order = Claim(OURS, "s-0", "pair", 1, 2), SliceOrder("s-0", group, "token")
    boot = Boot(
        claim,
        order,
        "/root",
        "uv",
        "1",
        "3.12",
        HostSettings("c:1", insecure=True, platform=Platform(cache_dir="/cache")),
    )
    words = " ".join(worker_words(boot))
    for part in (
        *("--controller c:1", "--join-token-file /root/join-token", "--name s-0-w1", "--slice s-0 --slice-index 1"),
        *("--cpu 4", f"--memory {2**30}", f"--disk {2**33}", "--gpu H100:8", "--work-dir /cache/iris-worker"),
        *("--attributes zone=z", "--attributes rack=7", "--attributes scale-group=pair", "--insecure"),
    ):
        assert part in words
    assert "pool" not in words, "the worker derives it from the slice"
    assert "token" not in words.replace("join-token", "")
    own = Boot(claim, replace(order, group=replace(group, host=Resources(device=Device("tpu", "v5litepod-16", 4)))),
               "/root", "uv", "1", "3.12", HostSettings("c:1"))  # fmt: skip
    assert "--tpu v5litepod-16" in " ".join(worker_words(own))


def test_what_a_login_prints_is_not_read_and_a_script_that_breaks_off_says_nothing() -> None:
    assert fields_of("Welcome!\niris:claim {}\niris:phase a b\niris:end \n") == {
        "claim": "{}",
        "phase": "a b",
        "end": "",
    }
    assert fields_of("iris:claim {}\n") is None


def test_a_damaged_file_of_hosts_is_named(tmp_path: Path) -> None:
    former = FormerHosts(str(tmp_path))
    former.add(targets_of([GROUP]))
    former.forget(["odd"])
    assert set(former.load()) == set("abcd")
    (tmp_path / "hosts.json").write_text("[{}]")
    with pytest.raises(InvalidRequest, match=r"hosts.json is damaged \('address'\); remove it"):
        former.load()
