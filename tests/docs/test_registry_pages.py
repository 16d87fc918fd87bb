"""The example packages of docs/add-a-provider.md and docs/add-a-store.md work, and their tables are complete."""

import os
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from tests.added_packages import install
from tests.servers.forked_python import Python

from turnwright.model import Provider
from turnwright.store import StoreScheme

from .page_blocks import blocks_of, commands_of, text_of

PAGES = pytest.mark.parametrize("page", ["add-a-provider.md", "add-a-store.md"])


@PAGES
def test_package_of_the_page_prints_the_output_of_the_page(tmp_path: Path, python: Python, page: str) -> None:
    code, project, session_block = blocks_of(page)
    about = tomllib.loads(project.text)["project"]
    ((group, entries),) = about["entry-points"].items()
    install(tmp_path, about["name"], group, entries, code.text)
    assert (tmp_path / code.title).read_text() == code.text
    for command, output in commands_of(session_block):
        program, *arguments = [word.strip('"') for word in command.split()]
        assert program == "turnwright"
        env = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(tmp_path)}
        ran = python.run("-W", "error", "-m", "turnwright", *arguments, folder=tmp_path, env=env)
        assert output in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("page", "record", "hidden"),
    [("add-a-provider.md", Provider, {"api", "ids", "takes_model"}), ("add-a-store.md", StoreScheme, {"aliases"})],
)
def test_every_field_of_the_record_is_listed(page: str, record: type, hidden: set[str]) -> None:
    """But for those that only built-in providers and stores have."""
    listed = set(re.findall(r"^- `(\w+)`", text_of(page), re.MULTILINE))
    assert listed == {field.name for field in fields(record)} - hidden
