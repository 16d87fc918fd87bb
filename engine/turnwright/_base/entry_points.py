"""Records that installed packages add by entry points.

Reading entry points takes about ten milliseconds, so no module does it while it is imported.
"""

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


class NamedRecord(Protocol):
    """A record with a name."""

    @property
    def name(self) -> str:
        """The name of the record's entry point."""
        ...


Record = TypeVar("Record", bound=NamedRecord)


def _entries(group: str) -> "EntryPoints":
    from importlib.metadata import entry_points  # noqa: PLC0415 (slow to load)

    return entry_points(group=group)


def added_names(group: str) -> list[str]:
    """Return the names that packages add, without loading anything."""
    return sorted({entry.name for entry in _entries(group)})


def find_added(group: str, name: str, kind: type[Record], error: type[Exception]) -> Record | None:
    """Load the record that a package adds as `name`, or return None.

    Raises `error`, which names the package, for a record that cannot be loaded or is no `kind` of this name, and for a
    name that two packages add. No other record is loaded.
    """
    entries = list(_entries(group).select(name=name))
    if not entries:
        return None
    if len(entries) > 1:
        packages = " and by ".join(sorted(map(_package_of, entries)))
        raise error(f"{group}: {name!r} is added by {packages}: uninstall all but one of them")
    (entry,) = entries
    record = load_entry(entry, error)
    if not isinstance(record, kind) or record.name != name:
        expected = f"{kind.__module__}.{kind.__qualname__}"
        why = f"is not a {expected} of that name, but {record!r:.200}"
        raise error(f"{_describe(entry)} {why}: upgrade or uninstall it")
    return record


def load_entry(entry: "EntryPoint", error: type[Exception]) -> object:
    """Return the object of an entry point. Raises `error`, which names the package, if it cannot be loaded."""
    try:
        value: object = entry.load()
    except Exception as failure:
        why = f"{type(failure).__name__}: {failure}"
        raise error(f"{_describe(entry)} cannot be loaded ({why}): upgrade the package, or uninstall it") from failure
    return value


def _describe(entry: "EntryPoint") -> str:
    return f"the entry point `{entry.name} = {entry.value}` ({entry.group}) of the package {_package_of(entry)}"


def _package_of(entry: "EntryPoint") -> str:
    return entry.dist.name if entry.dist else "a package without a name"
