"""The address of a store, as a flag or a configuration file writes it, and the registry of schemes.

Each built-in scheme is one entry of `SCHEMES`. Another package adds a scheme with an entry point in the group
`turnwright.stores`: its name is the scheme, its object a `StoreScheme`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from turnwright.errors import ConfigError

if TYPE_CHECKING:
    from .protocol import Store

GROUP: Final = "turnwright.stores"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreScheme:
    """One kind of store: its opener and its abilities.

    `name` is the part of an address before the first colon. `opener` is `module:function`, imported when the first
    store is opened. `function(address, *, create)` returns a `Store`. It raises `ConfigError` for an address that it
    cannot read and, without `create`, for a store that does not exist. `help` describes the store in a few words (`a
    SQLite file`), `example` shows its addresses, and `install` is the command that installs its dependencies.
    """

    name: str
    opener: str
    help: str
    example: str
    install: str = ""
    #: Other spellings of the scheme.
    aliases: tuple[str, ...] = ()
    #: The address is `NAME:///PATH?OPTIONS`. A relative path in a configuration file starts at the file's folder.
    in_file: bool = False
    #: Turns outlive the process that made them.
    outlives_process: bool = True
    #: The opener takes `notify=True`: each append then notifies the processes that watch.
    notifies: bool = False
    #: The store has a schema that `turnwright migrate` brings up to date.
    migrates: bool = True


SCHEMES: Final = (
    StoreScheme(
        name="memory",
        opener="turnwright.store.memory:open_memory",
        help="a store in memory",
        example="memory:",
        outlives_process=False,
        migrates=False,
    ),
    StoreScheme(
        name="sqlite",
        opener="turnwright.store.sqlite.store:open_sqlite",
        help="a SQLite file",
        example="sqlite:///relative.db, sqlite:////absolute.db",
        in_file=True,
    ),
    StoreScheme(
        name="postgresql",
        opener="turnwright.store.postgres.store:open_postgres",
        help="a PostgreSQL database",
        example="postgresql://user@host/name",
        install="pip install 'turnwright[postgres]'",
        aliases=("postgres",),
        notifies=True,
    ),
)
_BUILT_IN: Final = {name: scheme for scheme in SCHEMES for name in (scheme.name, *scheme.aliases)}


def find_scheme(address: str) -> StoreScheme | None:
    """Return the scheme of an address, or None for an unknown one.

    Raises `ConfigError` if its entry point is broken, or if two packages add the scheme.
    """
    name = address.partition(":")[0]
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    from turnwright._base.entry_points import find_added  # noqa: PLC0415 (slow, and few stores are of other packages)

    return find_added(GROUP, name, StoreScheme, ConfigError)


def open_store(address: str, *, create: bool = True, notify: bool = False) -> "Store":
    """Open the store at `address`.

    - `memory:`
    - `sqlite:///relative.db` or `sqlite:////absolute.db`. An acknowledged append survives a loss of power, unless
      `?durability=normal` is added.
    - `postgresql://user:password@host:port/database`, passed to libpq unchanged, with its options. The store connects
      at its first use. With `notify`, each append notifies the processes that watch.
    - the schemes that installed packages add (`StoreScheme`)

    Raises `ConfigError` for another address or option, for an unusable file, for a missing file without `create`, for
    `notify` with a store that cannot notify, and for a missing dependency. No message repeats a password.
    """
    scheme = find_scheme(address)
    if scheme is None:
        from turnwright._base.entry_points import added_names  # noqa: PLC0415 (slow, and only a mistake needs them)

        examples = [scheme.example + (f" ({scheme.install})" if scheme.install else "") for scheme in SCHEMES]
        examples += [f"{name}:..." for name in added_names(GROUP) if name not in _BUILT_IN]
        # A path is the commonest mistake.
        hint = "" if ":" in address or not address.strip() else f"for a SQLite file, write sqlite:///{address}; else "
        raise ConfigError(
            f"store {_without_password(address)!r}: unknown kind of address: {hint}use {', '.join(examples)}"
        )
    if notify and not scheme.notifies:
        raise ConfigError(f"store {scheme.name}:...: {scheme.help} cannot notify: leave the option out")
    module, _, function = scheme.opener.partition(":")
    try:
        opener: Callable[..., Store] = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        if scheme in SCHEMES and not scheme.install:
            raise  # a part of Python is missing, and no package installs it
        hint = scheme.install or "install what its package needs, or another version of the package"
        raise ConfigError(f"store {scheme.name}:...: {module} cannot be used ({error}): {hint}") from error
    return opener(address, create=create, notify=True) if notify else opener(address, create=create)


def outlives_process(address: str) -> bool:
    """Whether the next process finds the turns of a store. True for an unknown address: it may be a name."""
    with suppress(ConfigError):
        scheme = find_scheme(address)
        return scheme is None or scheme.outlives_process
    return True


def split_file(address: str) -> tuple[str, str]:
    """Split the address of a file store into prefix and path, options included: `sqlite:///`, `turns.db`.

    For any other store the path is empty.
    """
    before, separator, path = address.partition(":///")
    scheme = find_scheme(address) if path and ":" not in before else None
    return (before + separator, path) if scheme is not None and scheme.in_file else (address, "")


def _without_password(address: str) -> str:
    """Return the address without what may be user and password: the text between the first colon and the last @."""
    before, at, after = address.rpartition("@")
    scheme, colon, _ = before.partition(":")
    return f"{scheme}:...@{after}" if at and colon else address
