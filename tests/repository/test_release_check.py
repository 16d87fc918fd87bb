"""The refusals of `make release-check` and their messages. The complete check takes a minute, and runs in CI."""

import importlib.util
import re
import tomllib
from email.message import Message
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Protocol, cast

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "release_check.py"
#: What developers need, and the release job does not.
NOT_TO_RELEASE = ("import-linter", "mypy", "pyright", "ruff", "turnwright", "types-PyYAML")
CONSTRAINTS = ROOT / ".ci" / "release-constraints.txt"


class Script(Protocol):
    """The names of the script that the tests use."""

    UnfitError: type[Exception]

    def check_metadata(self, headers: Message, *, tag: str | None) -> None: ...

    def run(self, subject: str, command: list[str], folder: Path) -> str: ...


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
    """The metadata of a wheel that may be published."""
    headers = Message()
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
        headers[name] = value
    headers.set_payload("# Turnwright\n\nDrives one turn.")
    return headers


def test_complete_metadata_pass(script: Script, metadata: Message) -> None:
    script.check_metadata(metadata, tag=None)


def test_tag_of_another_version_is_refused(script: Script, metadata: Message) -> None:
    with pytest.raises(script.UnfitError, match=r"the tag is v1\.0\.0, and the version of the package is 9\.9\.9"):
        script.check_metadata(metadata, tag="v1.0.0")


def test_version_without_a_heading_in_the_changelog_is_refused(script: Script, metadata: Message) -> None:
    with pytest.raises(script.UnfitError, match=r"CHANGELOG\.md has no heading for 9\.9\.9"):
        script.check_metadata(metadata, tag="v9.9.9")


def test_missing_field_is_named(script: Script, metadata: Message) -> None:
    del metadata["Summary"]
    with pytest.raises(script.UnfitError, match="the metadata lack Summary"):
        script.check_metadata(metadata, tag=None)


def test_requirement_by_address_is_refused(script: Script, metadata: Message) -> None:
    metadata["Requires-Dist"] = "thing @ https://host.example/thing.whl"
    with pytest.raises(script.UnfitError, match="requirements by address"):
        script.check_metadata(metadata, tag=None)


def test_failed_command_is_named_with_the_output(script: Script, tmp_path: Path) -> None:
    with pytest.raises(script.UnfitError, match=r"a turn: exit code 3\nno model\n"):
        script.run("a turn", ["/bin/sh", "-c", "echo no model; exit 3"], tmp_path)


def pins() -> dict[str, str]:
    """The version of each package that the release job installs. Every line has a version and a hash."""
    lines = [line for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    matches = [re.fullmatch(r"([a-z0-9-]+)==([\w.]+)(?: --hash=sha256:[0-9a-f]{64})+", line) for line in lines]
    assert [line for line, match in zip(lines, matches, strict=True) if match is None] == []
    return {match[1]: match[2] for match in matches if match}


def test_release_job_has_a_version_of_every_installed_package() -> None:
    """The tools of the build, what the package needs to run, and what these need in turn.

    What another version than the one in the file needs is not asked: a package that was published since, and that
    somebody has installed, is not a fault of the file.
    """
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    job = {"python_version": "3.13", "python_full_version": "3.13.0", "sys_platform": "linux", "extra": ""}
    project = document["project"]
    lines = [*document["build-system"]["requires"], *project["dependencies"], *project["optional-dependencies"]["dev"]]
    requirements = [Requirement(line) for line in lines]
    requirements = [requirement for requirement in requirements if requirement.name not in NOT_TO_RELEASE]
    pinned, seen_names = pins(), set[str]()
    while requirements:
        requirement = requirements.pop()
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} is missing: run .ci/release_constraints.py"
        assert requirement.specifier.contains(pinned[name]), (
            f"{name} {pinned[name]} is not {requirement}: run .ci/release_constraints.py"
        )
        if name in seen_names:
            continue
        seen_names.add(name)
        try:
            further = [Requirement(line) for line in requires(name) or ()] if version(name) == pinned[name] else []
        except PackageNotFoundError:  # a tool of the build: not everybody who runs the tests has it
            further = []
        requirements += [line for line in further if line.marker is None or line.marker.evaluate(job)]


def test_release_job_installs_no_other_package() -> None:
    """pip refuses what is not in the file, and anything in it with another hash."""
    job = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]["build"]
    steps = [step["run"] for step in job["steps"] if "run" in step]
    file = ".ci/release-constraints.txt"
    installing = [step for step in steps if "pip install" in step]
    assert all(
        "--require-hashes --only-binary :all:" in step and f"--requirement {file}" in step for step in installing
    )
    assert installing
    assert [step for step in steps if "make" in step.split()] == []
    assert [step for step in steps if "release_check.py" in step and f"--constraints {file}" not in step] == []
