"""The examples' scorer tells plain insults and threats from ordinary texts."""

import pytest

from marin.toxicity import toxicity_classifier


@pytest.mark.parametrize(
    ("text", "hurts"),
    [
        ("You are a complete idiot.", True),
        ("nobody likes you, LOSER", True),
        ("kill yourself", True),
        ("I'm going to kill you!", True),
        ("what a st00000pid m0r0n you are", True),
        ("Go to hell, you b4stard", True),
        ("The weather is nice. You are worthless and pathetic. See you tomorrow.", True),
        ("shut the fuck up", True),
        ("", False),
        ("The committee met on Tuesday to discuss the budget.", False),
        ("The hero kills the dragon at the end of the book.", False),
        ("You are not stupid at all, keep asking!", False),
        ("He studied at MIT in 1975 and moved to Essex.", False),
        ("Recycling reduces the amount of garbage.", False),
        ("Assess the classics; the mishit shot was in Scunthorpe.", False),
    ],
)
def test_insults_and_threats_are_told_from_ordinary_texts(text: str, hurts: bool) -> None:
    assert (toxicity_classifier(text) > 0.5) is hurts


def test_several_texts_and_worse_ones() -> None:
    mild, worse = toxicity_classifier(["that was a stupid idea", "you are a stupid, worthless idiot"])
    assert 0 < mild < worse <= 1
    assert toxicity_classifier([]) == []
