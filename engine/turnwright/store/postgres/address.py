"""The address of a PostgreSQL store: what libpq reads in it, and what of it may be shown."""

import math
import re
from urllib.parse import quote

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from turnwright.errors import ConfigError


def parse_address(address: str, patience: float) -> tuple[str, str]:
    """The connection string for psycopg, and the store's name in messages: neither user nor password nor options.

    `patience`, in seconds, is the time to connect in, unless the address says. Raises `ConfigError`, which repeats
    nothing: also libpq's own words may quote a part of a password that was not encoded.
    """
    try:
        parameters = conninfo_to_dict(address)
    except ProgrammingError:
        raise _unreadable() from None
    host, port, database = (str(parameters.get(name) or "") for name in ("host", "port", "dbname"))
    authority, _, path = address.partition("://")[2].partition("/")
    # libpq ends user and password at the first @ or slash: what follows of a password is taken for host or database.
    read_on = (authority.partition("@")[2], path)
    if any("@" in part.partition("?")[0] for part in read_on) or re.search("[^0-9,]", port):
        raise _unreadable()
    shown = f"postgresql://{quote(host, safe=':,')}{f':{port}' if port else ''}/{database}"
    # libpq counts in whole seconds, and from two on.
    seconds = parameters.get("connect_timeout", max(2, math.ceil(patience)))
    name = parameters.get("application_name", "turnwright")
    return make_conninfo(address, connect_timeout=seconds, application_name=name), shown


def _unreadable() -> ConfigError:
    return ConfigError(
        "store postgresql://...: this is no address that PostgreSQL understands: write"
        " postgresql://user:password@host:port/database?option=value, special characters percent-encoded (@ as %40)"
    )
