"""Loading tools from a module or a `.py` file (`--tools`)."""

import importlib
import importlib.util
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from sysconfig import get_paths
from types import ModuleType
from typing import Final, NamedTuple

from turnwright.context import DepsFactory
from turnwright.errors import ConfigError

from .tool import Tool

_LOG: Final = logging.getLogger(__name__)
#: The beginning of the name of a module that is loaded from a path.
LOADED_NAME: Final = "turnwright_tools_"
_MODULE: Final = re.compile(r"\w+(?:\.\w+)*")
_IN_MODULE: Final = re.compile(r"{name}(?:\.{name})*:{name}(?:\.{name})*".format(name=r"[^\W\d]\w*"))


#: The folders of installed packages, also of a user's own and of a distribution's.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
#: The function of a tools module that makes the dependencies of its tools.
MAKE_DEPS: Final = "make_deps"


class LoadedTools(NamedTuple):
    """The tools of a module, and the function that makes their dependencies, if it has one."""

    tools: list[Tool]
    make_deps: DepsFactory[object] | None


def load_tools(spec: str) -> list[Tool]:
    """Return the tools of a module. Takes and raises what `load_tools_and_deps` does."""
    return load_tools_and_deps(spec).tools


def load_tools_and_deps(spec: str) -> LoadedTools:
    """Import `spec` and return the tools in its namespace, in the order of their definition, and its `make_deps`.

    `spec` is a path that ends in `.py`, or the dotted name of a module. As with `python FILE` and `python -m MODULE`,
    the import path includes the file's folder, or the working directory for a module. A file runs again each time it is
    loaded.

    Raises `ConfigError` for a missing file or module, for one that raises (the message has the type, the text and the
    line), for one without tools, for two tools with one name, and for a `make_deps` that is not a function.
    """
    module = load_module(spec)
    tools: dict[str, Tool] = {}
    for value in vars(module).values():
        if not isinstance(value, Tool):
            continue
        if not value.description.strip():
            _LOG.warning("%s: tool %s has no docstring: the model knows only its name", spec, value.name)
        if tools.setdefault(value.name, value) is not value:
            raise ConfigError(f"{spec} has two tools with the name {value.name!r}: rename one with @tool(name=...)")
    if not tools:
        raise ConfigError(f"{spec} has no tools: put @tool (from turnwright import tool) above a function in it")
    make_deps: DepsFactory[object] | None = getattr(module, MAKE_DEPS, None)
    if not (make_deps is None or callable(make_deps)):
        raise ConfigError(f"{spec}: {MAKE_DEPS} must be a function that makes the dependencies of a turn")
    return LoadedTools(list(tools.values()), make_deps)


def is_in_file(spec: str) -> bool:
    """Return whether this is `path/file.py` or `path/file.py:name`."""
    return spec.endswith(".py") or ".py:" in spec


def names_code(spec: str) -> bool:
    """Return whether this is `path/file.py`, `path/file.py:name` or `module:name`, and no Markdown file."""
    return is_in_file(spec) or (_IN_MODULE.fullmatch(spec) is not None and not spec.endswith(".md"))


def split_code(spec: str) -> tuple[str, str]:
    """Return the module or the `.py` file, and the name in it, which is empty if there is none."""
    module, colon, name = spec.rpartition(":")
    return (spec, "") if spec.endswith(".py") or not colon else (module, name)


def load_module(spec: str) -> ModuleType:
    """Import a path that ends in `.py`, or the dotted name of a module. Raises `ConfigError` if it cannot be loaded."""
    return _load_file(spec) if spec.endswith(".py") else _module(spec)


def _load_file(spec: str) -> ModuleType:
    path = Path(spec).expanduser().absolute()
    if not path.is_file():
        raise ConfigError(f"there is no file {spec}: give the path of a .py file, or the name of a module")
    # The name depends on the path, so that two files called tools.py are two modules.
    name = f"{LOADED_NAME}{sha256(str(path).encode(errors='replace')).hexdigest()[:12]}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    loader = module_spec.loader if module_spec else None
    if module_spec is None or loader is None:
        raise ConfigError(f"{spec} cannot be imported: give the path of a .py file, or the name of a module")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        _import(spec, path.parent, lambda: loader.exec_module(module))
    except ConfigError:
        del sys.modules[name]
        raise
    return module


def _module(spec: str) -> ModuleType:
    if not _MODULE.fullmatch(spec):
        raise ConfigError(f"{spec!r} is not a module: give the path of a .py file, or the dotted name of a module")
    _import(spec, Path.cwd(), lambda: importlib.import_module(spec))
    return sys.modules[spec]


def _import(spec: str, folder: Path, load: Callable[[], object]) -> None:
    try:
        with _importable(folder):
            load()
    except ModuleNotFoundError as error:
        if not spec.endswith(".py") and error.name and (spec == error.name or spec.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {spec!r} (looked in {folder} and in Python's own path): check the spelling,"
                " or give the path of a .py file"
            ) from error
        raise _explain_error(spec, error) from error
    except (Exception, SystemExit) as error:
        raise _explain_error(spec, error) from error


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    entry = str(folder)
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        # The module may have changed the path itself, so our entry may not be the first.
        if entry in sys.path:
            sys.path.remove(entry)


def user_line(error: BaseException) -> str | None:
    """Return the innermost line of the user's own code in the traceback of an error: `/a/tools.py, line 3`."""
    library_places, place = (get_paths()["stdlib"], "<"), None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
        is_ours = module.startswith("turnwright") and not module.startswith(LOADED_NAME)
        if not is_ours and not file.startswith(library_places) and _INSTALLED.isdisjoint(Path(file).parts):
            place = f"{file}, line {line}"
    return place


def _explain_error(spec: str, error: BaseException) -> ConfigError:
    """Return the error of a module with its place: the user's innermost line, else that of a library."""
    if isinstance(error, SyntaxError):
        where, text = f"{error.filename}, line {error.lineno}" if error.lineno else spec, error.msg
    else:
        *_, last = (frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename)
        where, text = user_line(error) or f"{last.filename}, line {last.lineno}", str(error)
    kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
    return ConfigError(f"{spec} cannot be loaded: {kind}{text} ({where})")
