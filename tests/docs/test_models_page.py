"""The flags, times and models on docs/models.md are those of the code."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from turnwright import model as models
from turnwright.model import Capabilities
from turnwright.model.http.client import HttpModel

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def table(heading: str, number: int = 0) -> list[list[str]]:
    """The cells of a table under a heading, by its number, without its two head lines."""
    section = PAGE.split(f"# {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[number].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)", cell)


def test_every_flag_is_listed_with_the_default() -> None:
    defaults = {name: row[1] for row in table("Server capabilities") for name in names(row[0])}
    words = {"True": "yes", "False": "no", "None": "none", "effort": "`effort`", "frozenset()": "none"}
    expected = {field.name: words.get(str(field.default), str(field.default)) for field in fields(Capabilities)}
    # The two about reasoning share a row.
    assert defaults == expected | {"reasoning_required": "none"}


@pytest.mark.parametrize("row", table("Models"), ids=lambda row: row[0])
def test_every_model_of_the_table_can_be_imported(row: list[str]) -> None:
    assert names(row[0])[0] in models.__all__


@pytest.mark.parametrize("client", [models.OpenAIChat, models.OpenAIResponses, models.AnthropicMessages])
def test_every_keyword_of_the_clients_is_explained(client: type) -> None:
    """The keywords of all clients too, which the signature does not list."""
    explained = set(re.findall(r"`(\w+)", inspect.getdoc(client) or ""))
    keywords = {*inspect.signature(client).parameters, *inspect.signature(HttpModel).parameters}
    assert keywords - explained == {"options"}


@pytest.mark.parametrize(("keyword", "default"), re.findall(r"`(\w+_timeout)` \((\d+) (?:s|h)\)", PAGE))
def test_times_of_the_page_equal_the_defaults(keyword: str, default: str) -> None:
    seconds = inspect.signature(HttpModel).parameters[keyword].default
    assert seconds in {float(default), 3600 * float(default)}
