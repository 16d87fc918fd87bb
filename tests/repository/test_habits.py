"""The repository keeps its habits: what its pages, its forms and its workflows name is there."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from turnwright_states.fact import PAYLOAD_VERSION

ROOT = Path(__file__).parents[2]
#: The projects of the checkout, the engine first.
PROJECTS: Final = [ROOT / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml"))]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PHONY = set(re.findall(r"[\w-]+", MAKEFILE.split(".PHONY:")[1].split("\n\n")[0].replace("\\\n", " ")))
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/versioning.md", ".github/PULL_REQUEST_TEMPLATE.md")
YAML = sorted([*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml"])
FORMS = sorted(set((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) - {ROOT / ".github/ISSUE_TEMPLATE/config.yml"})
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: Workflows that people copy: their actions are pinned as ours are.
COPIED = sorted((ROOT / "examples").glob("*.yml"))
#: Frameworks of those who use their guard, in the versions that `make guards` installs.
GUARDED: Final = {"agents", "langchain", "langchain-core", "langgraph"}
#: What is imported only where the package that is named here is there, which requires it.
BROUGHT: Final = {
    "httpx2": "mcp",
    "jsonschema": "mcp",
    "markupsafe": "jinja2",
    "mcp-types": "mcp",
    "protobuf": "a2a-sdk",
    "psycopg-pool": "psycopg",
    "pydantic-core": "pydantic",
    "sniffio": "trio",
    "typing-extensions": "pydantic",
}


def read(path: str | Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def parsed(path: Path) -> Any:  # noqa: ANN401 (any document)
    return yaml.safe_load(read(path))


def code_in(page: str) -> list[str]:
    """Return the code blocks and code spans of a page."""
    return re.findall(r"`([^`\n]+)`", read(page))


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_on_a_page_exists(page: str) -> None:
    text = "\n".join([*code_in(page), *re.findall(r"^\$? ?(make .*)$", read(page), flags=re.MULTILINE)])
    assert set(re.findall(r"\bmake ([a-z][\w-]*)", text)) <= PHONY


def test_make_help_lists_every_target() -> None:
    completed = subprocess.run(
        ["make", "--no-print-directory", "help"],  # noqa: S607 (whichever make there is)
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(re.findall(r"^ +make ([\w-]+) +\S", completed.stdout, flags=re.MULTILINE)) == PHONY


def test_every_path_in_the_contributors_guide_exists() -> None:
    names = {name for name in code_in("CONTRIBUTING.md") if re.fullmatch(r"[\w./-]+", name)}
    paths = {name for name in names if "/" in name or re.search(r"\.(py|md|toml)$", name)} | {"tests", "docs", "bench"}
    beside = [ROOT, ROOT / "states" / "turnwright_states", ROOT / "engine" / "turnwright"]
    ignored_paths = {".venv/bin/python"}
    assert {path for path in paths - ignored_paths if not any((place / path).exists() for place in beside)} == set()


def test_every_test_in_the_contributors_guide_exists() -> None:
    code = code_in("CONTRIBUTING.md")
    defined = "".join(read(path) for path in code if re.fullmatch(r"tests/[\w/]+\.py", path))
    assert [name for name in code if re.fullmatch(r"test_\w+", name) and f"def {name}(" not in defined] == []


@cache
def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: object = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES)
def test_every_dotted_name_on_a_page_exists(page: str) -> None:
    names = {name for name in code_in(page) if re.fullmatch(r"turnwright(_[a-z]+)?(\.\w+)+", name)} - {
        "turnwright.toml"
    }
    assert {name for name in names if not is_there(name)} == set()


def test_walk_of_a_step_names_the_modules() -> None:
    walk = read("CONTRIBUTING.md").split("## Five ways through the house\n")[1].split("\n## ")[0]
    assert len(set(re.findall(r"`(turnwright[\w.]+)`", walk))) >= 20


def test_every_room_is_on_the_map() -> None:
    rooms = {str(file.parent.relative_to(ROOT)) for file in (ROOT / "engine" / "turnwright").glob("*/__init__.py")}
    assert rooms <= set(code_in("CONTRIBUTING.md"))


def test_every_protocol_has_an_extra_and_tests() -> None:
    package = ROOT / "packages" / "protocols"
    extras = tomllib.loads(read(package / "pyproject.toml"))["project"]["optional-dependencies"]
    protocols = {init.parent.name for init in (package / "turnwright_protocols").glob("*/__init__.py")}
    assert {extra.replace("-", "_") for extra in extras} == protocols
    assert all(list((ROOT / "tests" / "protocols" / protocol).glob("test_*.py")) for protocol in protocols)


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_every_form_and_workflow_can_be_read(path: Path) -> None:
    assert isinstance(parsed(path), dict)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_form_has_the_required_fields(path: Path) -> None:
    form = parsed(path)
    assert {"name", "description", "body"} <= set(form)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)
    assert {field["type"] for field in form["body"]} <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def test_bug_report_asks_for_the_journal_and_the_replay_output() -> None:
    form = json.dumps(parsed(ROOT / ".github/ISSUE_TEMPLATE/bug.yml"))
    assert "turnwright replay TURN" in form
    assert "turnwright show TURN --journal" in form


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_has_only_the_required_permissions(path: Path) -> None:
    """It reads the code; to publish takes an identity, and nothing else. Nothing that it runs is a secret's holder."""
    flow = parsed(path)
    permissions = [flow["permissions"], *(job.get("permissions", {}) for job in flow["jobs"].values())]
    assert [
        permission for permission in permissions if permission not in ({}, {"contents": "read"}, {"id-token": "write"})
    ] == []
    assert "secrets." not in read(path)


def actions(node: object) -> Iterator[str]:
    """Every action or workflow that a part of a workflow uses, however it is written there."""
    if isinstance(node, dict):
        yield from (str(value) for key, value in node.items() if key in {"uses", "image", "container"})
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from actions(part)


@pytest.mark.parametrize("path", [*WORKFLOWS, *COPIED], ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_with_a_version_comment(path: Path) -> None:
    """A tag can be moved to other code. Dependabot moves the commit together with the version in the comment."""
    elsewhere = [action for action in actions(parsed(path)) if not action.startswith("./")]
    pinned = re.findall(
        r"^ *(?:- )?uses: ([\w-]+/[\w./-]+@[0-9a-f]{40}) # v\d+\.\d+\.\d+$", read(path), flags=re.MULTILINE
    )
    assert elsewhere == pinned
    assert pinned


def test_each_action_has_a_single_commit_and_version() -> None:
    pinned = {pin for path in [*WORKFLOWS, *COPIED] for pin in re.findall(r"uses: ([^\s@]+)@(\w+) # (\S+)", read(path))}
    names = [name for name, _, _ in pinned]
    assert sorted(names) == sorted(set(names))


def test_pinned_actions_are_updated_by_dependabot() -> None:
    (update,) = parsed(ROOT / ".github/dependabot.yml")["updates"]
    assert (update["package-ecosystem"], update["directory"]) == ("github-actions", "/")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_reused_workflow_exists_and_is_callable(path: Path) -> None:
    for workflow in re.findall(r"uses: \./(\S+)", read(path)):
        assert "workflow_call:" in read(workflow)


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_every_target_and_script_run_by_ci_exists(path: Path) -> None:
    text = read(path)
    assert set(re.findall(r"^(?: *- run: )?make ([\w-]+)", text, flags=re.MULTILINE)) <= PHONY
    assert [script for script in re.findall(r"\.ci/[\w.-]*\w", text) if not (ROOT / script).is_file()] == []


def test_ci_tests_every_promised_python_version() -> None:
    promised = re.findall(r"Programming Language :: Python :: (3\.\d+)", read("pyproject.toml"))
    matrix = parsed(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert (matrix["python"], matrix["os"]) == (promised, ["ubuntu-latest", "macos-latest"])


def test_hooks_run_the_tools_of_the_environment() -> None:
    (local,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    assert {hook["language"] for hook in local["hooks"]} == {"system"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in local["hooks"])


def declared() -> set[str]:
    """The distributions that are declared, whether by all or by an extra."""
    requirements: list[str] = []
    for path in PROJECTS:
        project = tomllib.loads(read(path))["project"]
        extras = project.get("optional-dependencies", {}).values()
        requirements += [*project["dependencies"], *(requirement for extra in extras for requirement in extra)]
    return set(map(name_of, requirements))


def name_of(requirement: str) -> str:
    """The name of a distribution in what requires it."""
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def imported() -> dict[str, set[str]]:
    """The packages of others that the code imports, and where."""
    places: dict[str, set[str]] = {}
    for source in [path for folder in ("engine", "states", "packages") for path in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module is not None:
                names = [node.module]
            for name in names:
                places.setdefault(name.partition(".")[0], set()).add(source.name)
    own = {"turnwright", "turnwright_states", *(f"turnwright_{path.parent.name}" for path in PROJECTS[1:])}
    return {
        name: where
        for name, where in places.items()
        # Newer Pythons have `annotationlib`, and type checkers `_typeshed`.
        if name not in {*sys.stdlib_module_names, "annotationlib", "_typeshed"} | own
    }


@pytest.mark.slow
def test_every_imported_distribution_is_declared() -> None:
    """A package that only a dependency installs may be gone tomorrow."""
    names, homes = declared(), packages_distributions()
    undeclared = {
        name: where
        for name, where in imported().items()
        if not set(map(name_of, homes.get(name, [name]))) & (names | set(BROUGHT) | GUARDED)
    }
    assert undeclared == {}


def test_version_page_covers_payloads_and_every_public_package() -> None:
    names = set(code_in("docs/versioning.md"))
    assert f'"v":{PAYLOAD_VERSION}' in names
    exports = re.search(r"^PACKAGES = \[(.+?)\]", read("tests/engine/test_exports.py"), flags=re.MULTILINE)
    assert exports is not None
    assert set(exports[1].split(", ")) <= names


@pytest.mark.parametrize("name", BROUGHT)
def test_indirect_dependency_is_required_by_a_declared_dependency(name: str) -> None:
    bringer = BROUGHT[name]
    assert bringer in declared()
    assert name in set(map(name_of, requires(bringer) or ()))


def test_uninstallable_program_does_not_block_the_others(tmp_path: Path) -> None:
    """As where Node.js comes from elsewhere, and Debian's npm conflicts with it."""
    log = tmp_path / "log"
    fake = tmp_path / "apt-get"
    fake.write_text(f'#!/bin/sh\necho "$*" >> {log}\ncase "$*" in *npm*) exit 1 ;; esac\n', encoding="utf-8")
    (tmp_path / "node").write_text("#!/bin/sh\n", encoding="utf-8")
    for program in tmp_path.iterdir():
        program.chmod(0o755)
    ran = subprocess.run(
        ["/bin/bash", str(ROOT / ".ci" / "machine")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    packages = [line.partition("--no-install-recommends ")[2] for line in log.read_text(encoding="utf-8").splitlines()]
    assert packages == ["", "graphviz", "postgresql", "npm", "chromium-headless-shell", "chromium"]
    assert ran.stdout == "npm could not be installed: tests with real MCP servers will be skipped, and say so\n"
