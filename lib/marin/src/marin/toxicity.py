"""A small scorer of English insults and threats, for examples and tests of data jobs.

It is a weighted word list, not a trained model. It recognises plain insults, threats and their usual disguises, but not
irony, context or other languages. To filter a corpus use a trained classifier; the interface is the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final, overload

_WEIGHTS: Final = {
    r"idiots?|morons?|imbeciles?|retards?|dumbass(?:es)?|jackass(?:es)?": 0.8,
    r"stupid|dumb|pathetic|worthless|disgusting|braindead": 0.5,
    r"losers?|scum|vermin|filth|trash|garbage": 0.45,
    r"fuck\w*|motherfuck\w*": 0.6,
    r"shit\w*|bullshit|crap": 0.35,
    r"bitch\w*|bastards?|assholes?|cunts?|whores?|sluts?": 0.8,
    r"hate|despise": 0.3,
    r"(?:shut|stfu) ?(?:the \w+ )?(?:up)?": 0.35,
    r"(?:go to|burn in|rot in) hell": 0.7,
    r"(?:i ?(?:will|ll|am going to|m going to)|gonna) (?:kill|hurt|shoot|stab|beat|destroy) (?:you|him|her|them)": 0.95,
    r"(?:kill|hang|drown) (?:yourself|urself)|kys": 0.97,
    r"(?:you|u|he|she|they|all of you) (?:should|deserve to|must) die": 0.95,
    r"nobody (?:likes|loves|wants) you": 0.6,
}
"""The likelihood that a sentence with these words is meant to hurt."""
_PATTERNS: Final = [(re.compile(rf"\b(?:{pattern})\b"), weight) for pattern, weight in _WEIGHTS.items()]
_NEGATED: Final = re.compile(r"\b(?:not|never|isn t|aren t|don t|without) (?:a |an |so |that |be |being |at all )?$")
_ADDRESSED: Final = re.compile(r"\b(?:you|your|youre|u|ur|yourself)\b")
_ADDRESSED_FACTOR: Final = 1.2
_MOST_WEIGHT: Final = 0.99
_DISGUISES: Final = str.maketrans(
    {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "$": "s", "@": "a", "!": "i"}
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|\n+")


@overload
def toxicity_classifier(text: str) -> float: ...


@overload
def toxicity_classifier(text: list[str] | tuple[str, ...]) -> list[float]: ...


def toxicity_classifier(text: str | list[str] | tuple[str, ...]) -> float | list[float]:
    """Return the likelihood, 0 to 1, that a text is an insult or a threat. For several texts, return a list.

    The score is that of the worst sentence. A sentence with matches of weights w1, w2, … scores 1 - (1 - w1)(1 - w2)….
    A weight grows by a fifth if the sentence addresses a person, and is ignored after a "not".
    """
    if isinstance(text, str):
        return max((_sentence_score(sentence) for sentence in _SENTENCE_END.split(text)), default=0.0)
    return [toxicity_classifier(each) for each in text]


def _sentence_score(sentence: str) -> float:
    words = _normal(sentence)
    factor = _ADDRESSED_FACTOR if _ADDRESSED.search(words) else 1.0
    harmless = 1.0
    for weight in _weights_in(words):
        harmless *= 1 - min(_MOST_WEIGHT, weight * factor)
    return round(1 - harmless, 4)


def _weights_in(words: str) -> Iterator[float]:
    for pattern, weight in _PATTERNS:
        for match in pattern.finditer(words):
            if not _NEGATED.search(words[: match.start()]):
                yield weight


def _normal(sentence: str) -> str:
    """Return the text in lower case with single spaces, without accents, and with digits and stretched letters
    replaced.
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", sentence) if not unicodedata.combining(c)).lower()
    words = [word.rstrip("!").translate(_DISGUISES) if re.search("[a-z]", word) else word for word in plain.split()]
    joined = re.sub(r"(.)\1{2,}", r"\1", " ".join(words))
    return " ".join(re.findall(r"[a-z0-9]+", joined))
