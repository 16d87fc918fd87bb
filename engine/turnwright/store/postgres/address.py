"""The address of a PostgreSQL store, as libpq reads it and as messages may show it."""

import math
import re
from urllib.parse import quote

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from turnwright.errors import ConfigError


def parse_address(address: str, patience: float) -> tuple[str, str]:
    """Return the connection string for psycopg, and the store's name in messages, without user, password and options.

    `patience` is the connection timeout in seconds, unless the address sets one. Raises `ConfigError`, which repeats
    no part of the address: libpq's message may quote a part of a password that was not encoded.
    """
    try:
        parameters = conninfo_to_dict(address)
    except ProgrammingError:
        raise _unreadable() from None
    host, port, database = (str(parameters.get(name) or "") for name in ("host", "port", "dbname"))
    authority, _, path = address.partition("://")[2].partition("/")
    # libpq ends user and password at the first @ or slash. It reads the rest of a password as host or database.
    read_on = (authority.partition("@")[2], path)
    if any("@" in part.partition("?")[0] for part in read_on) or re.search("[^0-9,]", port):
        raise _unreadable()
    shown = f"postgresql://{quote(host, safe=':,')}{f':{port}' if port else ''}/{database}"
    # libpq accepts whole seconds, at least two.
    seconds = parameters.get("connect_timeout", max(2, math.ceil(patience)))
    name = parameters.get("application_name", "turnwright")
    return make_conninfo(address, connect_timeout=seconds, application_name=name), shown


def _unreadable() -> ConfigError:
    return ConfigError(
        "store postgresql://...: PostgreSQL cannot read this address: write"
        " postgresql://user:password@host:port/database?option=value, special characters percent-encoded (@ as %40)"
    )
