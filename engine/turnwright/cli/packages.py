"""The packages beside the engine: the commands that they add, and the parts that commands of the engine use.

The engine imports none of them. A package adds a command by an entry point of the group `turnwright.commands`.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from turnwright.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: The group of entry points that add commands: a name, and `module:function`.
COMMANDS: Final = "turnwright.commands"
#: The packages that another one needs. In a checkout, pip must be given them all.
NEEDS: Final = {"turnwright-inspector": ("turnwright-audit", "turnwright-proof")}


def load_command(name: str, package: str | None = None) -> Callable[..., object] | None:
    """Return the function of a command that a package adds, or None if none adds it.

    `package` is the distribution that has the command, with its extra if it needs one. Raises `ConfigError` if it is
    not installed, and for a command that cannot be loaded.
    """
    from turnwright._base.entry_points import load_entry  # noqa: PLC0415 (the help needs none of it)

    for entry in _entries():
        if entry.name == entry_name(name):
            return cast("Callable[..., object]", load_entry(entry, ConfigError))
    if package is not None:
        raise missing_package(f"turnwright {name}", package)
    return None


def entry_name(command: str) -> str:
    """Return the name of a command's entry point, which has no space: `mcp-serve` for `mcp serve`."""
    return command.replace(" ", "-")


@cache
def _entries() -> "tuple[EntryPoint, ...]":
    """Read the entry points of all installed distributions. It takes longer than to load a command."""
    from importlib.metadata import entry_points  # noqa: PLC0415 (loads `email`, and the help needs none of it)

    return tuple(entry_points(group=COMMANDS))


def import_part(module: str, user: str) -> ModuleType:
    """Import a module of a package for `user`, a command or a flag. Raises `ConfigError` if it is not installed."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise missing_package(user, package.replace("_", "-")) from None


def missing_package(user: str, package: str) -> ConfigError:
    """Make the error of a command or a flag whose package is not installed. `package` may have an extra."""
    import shlex  # noqa: PLC0415 (the help needs none of it)

    name = package.partition("[")[0]
    folders = [f"packages/{part.removeprefix('turnwright-')}" for part in (*NEEDS.get(name, ()), package)]
    return ConfigError(
        f"{user} is part of {name}, which is not installed: pip install {shlex.quote(package)}"
        f" (in a checkout of Turnwright: pip install {' '.join(f'-e {shlex.quote(folder)}' for folder in folders)})"
    )
