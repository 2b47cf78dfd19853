from dataclasses import fields
from pathlib import Path

from fray.capabilities import DIFFERENCES, BackendCapabilities
from fray.testing import contract, docs

DOCUMENT = Path(__file__).parents[3] / "docs" / "fray.md"


def test_the_table_of_differences_is_what_the_backends_declare() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == docs.with_table(text), "run: uv run --group dev python -m fray.testing.docs docs/fray.md"


def test_every_difference_is_in_words_and_in_the_contract() -> None:
    names = [field.name for field in fields(BackendCapabilities)]
    assert list(DIFFERENCES) == names
    source = "".join(path.read_text(encoding="utf-8") for path in Path(contract.__path__[0]).glob("*.py"))
    untested = [name for name in names if f"capabilities.{name}" not in source]
    assert untested == []


def test_a_table() -> None:
    names = [field.name for field in fields(BackendCapabilities)]
    all_of_it = BackendCapabilities(**dict.fromkeys(names, True))
    nothing = BackendCapabilities(**dict.fromkeys(names, False))
    lines = docs.table({"good": all_of_it, "poor": nothing}).splitlines()
    assert lines[0] == "| promise | good | poor | otherwise |"
    assert lines[2].startswith(f"| {DIFFERENCES[names[0]].promise} | yes | – | {DIFFERENCES[names[0]].instead} |")
    assert len(lines) == 2 + len(names)
