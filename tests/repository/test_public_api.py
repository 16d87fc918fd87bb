"""The public API is a list of names, each with one line that says what it is."""

import importlib
import inspect
import pkgutil
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

LISTED: Final[dict[str, dict[str, str]]] = tomllib.loads(
    (Path(__file__).parent / "public_api.toml").read_text(encoding="utf-8")
)
#: Packages whose `__all__` is for the rest of this project.
INTERNAL: Final = {"turnwright.cli", "turnwright_inspector.tabs", "turnwright.otel.api"}
#: Modules that import a framework which only an environment of its own has (`make guards`), or a model's engine that
#: `make test` does not install.
ELSEWHERE: Final = {
    "turnwright_guards.langchain",
    "turnwright_guards.openai_agents",
    *(() if find_spec("xllamacpp") else ("turnwright.model.local.child_process",)),
}
#: Packages whose library has no release for this Python: their modules and exports cannot be imported.
UNRELEASED: Final = () if find_spec("acp") else ("turnwright_protocols.acp.",)
IMPORTABLE: Final = {package: names for package, names in LISTED.items() if not f"{package}.".startswith(UNRELEASED)}
#: The packages of all distributions.
ROOTS: Final = (
    "turnwright",
    "turnwright_states",
    *sorted(f"turnwright_{path.parent.name}" for path in Path(__file__).parents[2].glob("packages/*/pyproject.toml")),
)
LONGEST: Final = 100


def modules() -> Iterator[ModuleType]:
    """Every module of each distribution, imported."""
    for root in ROOTS:
        yield (package := importlib.import_module(root))
        for module in pkgutil.walk_packages(package.__path__, f"{root}."):
            is_elsewhere = module.name in ELSEWHERE or module.name.startswith(UNRELEASED)
            if not module.name.endswith("__main__") and not is_elsewhere:
                yield importlib.import_module(module.name)


@pytest.mark.parametrize("package", LISTED)
def test_package_exports_the_listed_names(package: str) -> None:
    assert sorted(LISTED[package]) == sorted(importlib.import_module(package).__all__)


def test_every_package_with_exports_is_listed() -> None:
    exporting = {module.__name__ for module in modules() if hasattr(module, "__all__")}
    assert exporting - INTERNAL == set(LISTED)


@pytest.mark.parametrize("package", LISTED)
def test_description_is_a_plain_sentence(package: str) -> None:
    for name, text in LISTED[package].items():
        assert text.endswith("."), name
        assert len(text) <= LONGEST, name
        assert text.split()[0] not in {"What", "Who", "Whether"}, name


def test_no_two_public_classes_share_a_name() -> None:
    """Also across packages: one that several packages export is the same class in each, or derived from it."""
    classes_by_name: dict[str, set[type]] = {}
    for package, names in IMPORTABLE.items():
        for name in names:
            value = getattr(importlib.import_module(package), name)
            if isinstance(value, type):
                classes_by_name.setdefault(name, set()).add(value)
    roots_by_name = {
        name: [cls for cls in classes if classes.isdisjoint(cls.__mro__[1:])]
        for name, classes in classes_by_name.items()
    }
    assert {name: roots for name, roots in roots_by_name.items() if len(roots) > 1} == {}


def test_export_has_the_same_description_in_every_package() -> None:
    lines_by_export: dict[tuple[str, int], set[str]] = {}
    for package, names in IMPORTABLE.items():
        for name, line in names.items():
            export = getattr(importlib.import_module(package), name)
            lines_by_export.setdefault((name, id(export)), set()).add(line)
    assert {name: lines for (name, _), lines in lines_by_export.items() if len(lines) > 1} == {}


def test_every_exception_ends_in_error() -> None:
    """Private ones too. `Retry` asks the model to try again, and `Later` says that the result comes later."""
    assert [
        f"{module.__name__}.{name}"
        for module in modules()
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, BaseException)
        and value.__module__ == module.__name__
        and not name.endswith("Error")
    ] == ["turnwright.errors.Retry", "turnwright.tools.later.Later"]
