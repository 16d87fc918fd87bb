"""Records that installed packages add by entry points.

Reading entry points takes about ten milliseconds, so no module does it while it is imported.
"""

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


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
    packages = sorted(entry.dist.name if entry.dist else "a package without a name" for entry in entries)
    if len(entries) > 1:
        raise error(f"{group}: {name!r} is added by {' and by '.join(packages)}: uninstall all but one of them")
    (entry,) = entries
    where = f"the entry point `{name} = {entry.value}` ({group}) of the package {packages[0]}"
    try:
        record: object = entry.load()
    except Exception as failure:
        why = f"{type(failure).__name__}: {failure}"
        raise error(f"{where} cannot be loaded ({why}): upgrade the package, or uninstall it") from failure
    if not isinstance(record, kind) or record.name != name:
        expected = f"{kind.__module__}.{kind.__qualname__}"
        raise error(f"{where} is not a {expected} of that name, but {record!r:.200}: upgrade or uninstall it")
    return record
