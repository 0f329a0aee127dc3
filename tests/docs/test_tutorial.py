"""docs/tutorial.md is run as a doctest; here it is seen to that all code in it is, and that links lead somewhere."""

import doctest
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


@pytest.fixture(scope="module")
def text():
    return PAGE.read_text(encoding="utf-8")


def not_run(text):
    """The lines of fenced blocks that are neither an example nor what one prints."""
    numbers = set()
    for example in doctest.DocTestParser().get_examples(text):
        lines = example.source.count("\n") + example.want.count("\n")
        numbers |= set(range(example.lineno, example.lineno + lines))
    found, inside = [], False
    for number, line in enumerate(text.splitlines()):
        if line.startswith("```"):
            inside = not inside
        elif inside and line and number not in numbers:
            found.append(line)
    return found


def test_every_line_of_code_is_run(text):
    assert text.count("```python\n>>> ") == text.count("\n```\n") > 20
    assert not_run(text) == []


def test_a_line_that_is_not_run_is_found(text):
    assert not_run(text + "\n```python\nprint(1)\n```\n") == ["print(1)"]


def test_every_example_expects_only_what_it_prints(text):
    assert not [example.source for example in doctest.DocTestParser().get_examples(text) if "```" in example.want]


def test_links_lead_somewhere(text):
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    anchors = {"#" + re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert anchors <= set(links)
    for link in links:
        assert link in anchors or (PAGE.parent / link).is_file(), link
