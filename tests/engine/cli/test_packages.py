"""The packages beside the engine: their commands, and the messages about a package that is not installed."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from turnwright._base.version import VERSION
from turnwright.cli.app import PLACES
from turnwright.cli.help_text import PACKAGE
from turnwright.cli.packages import import_part, load_command
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


def run_alone(*arguments: str) -> tuple[int, str]:
    """Run a command without the packages: its exit code and its messages."""
    command = [sys.executable, "-c", ALONE, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("name", [name for name, place in PLACES.items() if place.startswith(PACKAGE)])
def test_command_of_a_missing_package_names_the_package(name: str) -> None:
    code, message = run_alone(name)
    assert code == 2
    assert f"turnwright {name} is part of {PLACES[name]}, which is not installed: pip install {PLACES[name]}" in message
    assert f"pip install -e packages/{PLACES[name].removeprefix(PACKAGE)}" in message


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
