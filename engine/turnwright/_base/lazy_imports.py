"""Names of a package that are imported at their first use (PEP 562).

`import turnwright` loads none of the package's names. Model clients, stores on disk and the parsers of agent files are
loaded at their first use. `from package import name` loads them at once, so that their errors appear there.
"""

import sys

TYPE_CHECKING = False  # `typing` and `collections` take long to load
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_imports(
    package: str, names: "Mapping[str, str]", *, extra: str = ""
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """Return `__getattr__` and `__dir__` for a package. `names` has the lazy names of each module, between blanks.

    A module is relative to the package (`.module`), or absolute. Type checkers read the same imports under
    `if TYPE_CHECKING`. Each name is imported once and then kept. `__getattr__` raises `AttributeError` for an unknown
    name, and the errors of the import: if a library is missing, with the `extra` that installs it.
    """
    homes = {name: module for module, lazy_names in names.items() for name in lazy_names.split()}

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        from importlib import import_module  # noqa: PLC0415 (a package is imported without it)

        try:
            value: object = getattr(import_module(homes[name], package), name)
        except ModuleNotFoundError as missing:
            if not extra:
                raise
            library = (missing.name or "a library").partition(".")[0]
            advice = f"{package}.{name} needs {library}: pip install '{extra}'"
            raise ModuleNotFoundError(advice, name=missing.name) from missing
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, list_names
