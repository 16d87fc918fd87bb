"""Names of a package that are imported when somebody asks for them (PEP 562): what costs much and few use.

`import turnwright` is to cost no more than what every turn needs. An adapter that talks HTTP, a store on disk and the
readers of agent files are loaded by the first who names them, and by `from package import name` at once, so that what
is wrong with them is said there.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_imports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package: `homes` gives the module of each late name, as `.module`.

    Type checkers read the same imports written out under `if TYPE_CHECKING`. What is found is kept, so a name is looked
    up here once. `__getattr__` raises `AttributeError` for a name that the package does not have, and whatever
    importing a module raises.
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        found: object = getattr(import_module(homes[name], package), name)
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names
