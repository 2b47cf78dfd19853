"""The examples' scorer tells plain insults and threats from ordinary texts."""

import pytest

from marin.toxicity import toxicity_classifier

HURTFUL = (
    "You are a complete idiot.",
    "nobody likes you, LOSER",
    "kill yourself",
    "I'm going to kill you!",
    "what a st00000pid m0r0n you are",
    "Go to hell, you b4stard",
    "The weather is nice. You are worthless and pathetic. See you tomorrow.",
    "shut the fuck up",
)
HARMLESS = (
    "",
    "The committee met on Tuesday to discuss the budget.",
    "The hero kills the dragon at the end of the book.",
    "You are not stupid at all, keep asking!",
    "He studied at MIT in 1975 and moved to Essex.",
    "Recycling reduces the amount of garbage.",
    "Assess the classics; the mishit shot was in Scunthorpe.",
)


@pytest.mark.parametrize("text", HURTFUL)
def test_insults_and_threats(text: str) -> None:
    assert toxicity_classifier(text) > 0.5


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_texts(text: str) -> None:
    assert toxicity_classifier(text) < 0.5


def test_several_texts_and_worse_ones() -> None:
    mild, worse = toxicity_classifier(["that was a stupid idea", "you are a stupid, worthless idiot"])
    assert 0 < mild < worse <= 1
    assert toxicity_classifier([]) == []
