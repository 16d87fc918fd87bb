"""The packages beside the engine: their commands, and the messages about a package that is not installed."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from turnwright._base.version import VERSION
from turnwright.cli.app import PLACES
from turnwright.cli.help_text import PACKAGE
from turnwright.cli.packages import entry_name, import_part, load_command
from turnwright.errors import ConfigError

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli

ROOT: Final = Path(__file__).parents[3]
PROJECTS: Final = {
    path.parent.name: tomllib.loads(path.read_text(encoding="utf-8")) for path in ROOT.glob("packages/*/pyproject.toml")
}
#: Runs the command line where the packages beside the engine cannot be found.
ALONE: Final = """
import sys
from importlib import metadata
from turnwright.cli import main
class Missing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top.startswith("turnwright_") and top != "turnwright_states":
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
sys.meta_path.insert(0, Missing())
metadata.entry_points = lambda **_: ()
main()
"""
#: Prints the error of each public name of the protocols where their libraries cannot be found.
NO_LIBRARIES: Final = """
import json, sys
from importlib import import_module
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("a2a", "acp", "ag_ui", "mcp", "starlette"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
errors = {}
for protocol in sys.argv[1:]:
    package = import_module(f"turnwright_protocols.{protocol}")
    for name in package.__all__:
        try:
            getattr(package, name)
        except ModuleNotFoundError as error:
            errors[f"{protocol}.{name}"] = str(error)
print(json.dumps(errors))
"""


def run_alone(*arguments: str) -> tuple[int, str]:
    """Run a command without the packages: its exit code and its messages."""
    command = [sys.executable, "-c", ALONE, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr


def required_folders(folder: str) -> set[str]:
    """Return the folders of a package and of all packages that it needs."""
    needs = [line.partition("=")[0] for line in PROJECTS[folder]["project"]["dependencies"]]
    folders = [name.removeprefix(PACKAGE) for name in needs if name.startswith(PACKAGE)]
    return {folder}.union(*map(required_folders, folders))


@pytest.mark.parametrize("name", [name for name, place in PLACES.items() if place.startswith(PACKAGE)])
def test_command_of_a_missing_package_names_the_package(name: str) -> None:
    """Both commands of the message can be typed: pip finds each package and extra, in a checkout too."""
    package, _, extra = PLACES[name].rstrip("]").partition("[")
    code, message = run_alone(*name.split())
    assert code == 2
    assert f"turnwright {name} is part of {package}, which is not installed: pip install {package}" in (
        message.replace("'", "")
    )
    anywhere, checkout = (shlex.split(command) for command in re.findall(r"pip install ([^()]+)", message))
    folder = package.removeprefix(PACKAGE)
    assert anywhere == [PLACES[name]]
    assert checkout[-1] == f"packages/{PLACES[name].removeprefix(PACKAGE)}"
    assert {place.partition("[")[0] for place in checkout[1::2]} == {f"packages/{f}" for f in required_folders(folder)}
    assert not extra or extra in PROJECTS[folder]["project"]["optional-dependencies"]


def test_protocol_without_its_library_names_the_extra() -> None:
    extras = PROJECTS["protocols"]["project"]["optional-dependencies"]
    protocols = {extra.replace("-", "_"): extra for extra in extras}
    ran = subprocess.run([sys.executable, "-c", NO_LIBRARIES, *protocols], capture_output=True, text=True, check=True)
    errors: dict[str, str] = json.loads(ran.stdout)
    for name, error in errors.items():
        extra = protocols[name.partition(".")[0]]
        assert re.fullmatch(
            rf"turnwright_protocols\.{name} needs \w+: pip install 'turnwright-protocols\[{extra}\]'", error
        )
    assert {name.partition(".")[0] for name in errors} == protocols.keys()


@pytest.mark.parametrize(
    ("arguments", "package"),
    [
        (["demo", "audit"], "turnwright-audit"),
        (["demo", "--serve"], "turnwright-inspector"),
        (["agents", "--diff", "old.md", "new.md"], "turnwright-proof"),
    ],
)
def test_flag_of_a_missing_package_names_the_package(arguments: list[str], package: str) -> None:
    code, message = run_alone(*arguments)
    assert code == 2
    assert f"is part of {package}, which is not installed" in message


def test_help_lists_all_commands_without_the_packages() -> None:
    ran = subprocess.run([sys.executable, "-c", ALONE, "--help"], capture_output=True, text=True, check=True)
    assert {"audit", "serve", "verify"} <= set(ran.stdout.split())


def test_wrong_command_is_refused_without_the_packages() -> None:
    code, message = run_alone("nosuch")
    assert code == 2
    assert "No such command 'nosuch'" in message


def test_command_of_two_words_is_typed_as_two_words(cli: "Cli") -> None:
    """Its entry point has a hyphen, and is no other name of it."""
    for name in [name for name in PLACES if " " in name]:
        refused = cli.run(entry_name(name), "--help")
        assert (refused.code, refused.out) == (2, "")
        assert f"No such command '{entry_name(name)}'" in refused.err
        assert f"'{name}'" in refused.err, "the command is suggested"


def test_error_inside_a_package_is_not_a_missing_package() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"turnwright\.nosuch"):
        import_part("turnwright.nosuch", "a flag")


def test_part_of_a_missing_package_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="a flag is part of turnwright-nosuch"):
        import_part("turnwright_nosuch.part", "a flag")


def test_unknown_command_has_no_function() -> None:
    assert load_command("nosuch") is None


def test_installed_package_of_others_adds_a_command(cli: "Cli") -> None:
    """Any distribution may add a command by an entry point."""
    info = Path(cli.folder) / "hello-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[turnwright.commands]\nhello = hello_command:hello\n", encoding="utf-8")
    source = 'def hello(name: str = "you") -> None:\n    """Say hello."""\n    print(f"Hello, {name}.")\n'
    (Path(cli.folder) / "hello_command.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "turnwright", "hello", "--name", "Ann"]
    ran = subprocess.run(command, cwd=cli.folder, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "Hello, Ann.\n"), ran.stderr


def test_command_that_cannot_be_loaded_names_its_package(cli: "Cli") -> None:
    info = Path(cli.folder) / "hello-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[turnwright.commands]\nhello = no_module:hello\n", encoding="utf-8")
    command = [sys.executable, "-m", "turnwright", "hello"]
    ran = subprocess.run(command, cwd=cli.folder, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    place = "the entry point `hello = no_module:hello` (turnwright.commands) of the package hello"
    assert f"{place} cannot be loaded (ModuleNotFoundError: No module named 'no_module')" in ran.stderr


@pytest.mark.parametrize("name", PROJECTS)
def test_package_has_the_version_of_the_engine(name: str) -> None:
    project = PROJECTS[name]["project"]
    assert project["version"] == VERSION
    ours = [line for line in project["dependencies"] if line.startswith("turnwright")]
    assert ours
    assert all(line.endswith(f"=={VERSION}") for line in ours)


def test_engine_has_at_most_seven_dependencies() -> None:
    engine = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert len(engine["project"]["dependencies"]) <= 7
