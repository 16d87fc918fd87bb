"""What `make release-check` refuses, and in which words. The whole of it takes a minute, and runs in CI."""

import importlib.util
from email.message import Message
from pathlib import Path
from typing import Protocol, cast

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "release_check.py"


class Script(Protocol):
    """What is tested of the script."""

    Unfit: type[Exception]

    def check_metadata(self, found: Message, *, tag: str | None) -> None: ...

    def run(self, what: str, command: list[str], folder: Path) -> str: ...


@pytest.fixture
def script() -> Script:
    spec = importlib.util.spec_from_file_location("release_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Script", module)


@pytest.fixture
def metadata() -> Message:
    """What a wheel that may go out says of itself."""
    found = Message()
    fields = {
        "Name": "turnwright",
        "Version": "9.9.9",
        "Summary": "It ends.",
        "License-Expression": "Apache-2.0",
        "Requires-Python": ">=3.11",
        "Description-Content-Type": "text/markdown",
        "Requires-Dist": "anyio>=4.6",
    }
    for name, value in fields.items():
        found[name] = value
    found.set_payload("# Turnwright\n\nDrives one turn.")
    return found


def test_whole_metadata_pass(script: Script, metadata: Message) -> None:
    script.check_metadata(metadata, tag=None)


def test_a_tag_of_another_version_is_refused(script: Script, metadata: Message) -> None:
    with pytest.raises(script.Unfit, match=r"the tag is v1\.0\.0, and the version in pyproject\.toml is 9\.9\.9"):
        script.check_metadata(metadata, tag="v1.0.0")


def test_a_version_without_a_heading_in_the_changelog_is_refused(script: Script, metadata: Message) -> None:
    with pytest.raises(script.Unfit, match=r"CHANGELOG\.md has no heading for 9\.9\.9"):
        script.check_metadata(metadata, tag="v9.9.9")


def test_a_missing_field_is_named(script: Script, metadata: Message) -> None:
    del metadata["Summary"]
    with pytest.raises(script.Unfit, match="the metadata lack Summary"):
        script.check_metadata(metadata, tag=None)


def test_a_requirement_by_address_is_refused(script: Script, metadata: Message) -> None:
    metadata["Requires-Dist"] = "thing @ https://host.example/thing.whl"
    with pytest.raises(script.Unfit, match="requirements by address"):
        script.check_metadata(metadata, tag=None)


def test_what_fails_is_named_with_what_it_said(script: Script, tmp_path: Path) -> None:
    with pytest.raises(script.Unfit, match=r"a turn: exit code 3\nno model\n"):
        script.run("a turn", ["/bin/sh", "-c", "echo no model; exit 3"], tmp_path)
