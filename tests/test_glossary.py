"""Every type that the glossary names is there."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "glossary.md").read_text()
NAMES = sorted(set(re.findall(r"`((?:rigging|fray|iris|marin)\.[\w.]+)`", PAGE)))


def test_the_glossary_names_types() -> None:
    assert len(NAMES) > 50


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_glossary_is_there(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)
