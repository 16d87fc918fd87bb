"""A real PostgreSQL server of one's own: it keeps its data and its address, and leaves nothing behind."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.servers.postgres_server import PostgresServer

from turnwright.errors import ConfigError, StoreError

if (_REASON := PostgresServer.reason_missing()) is not None:
    pytest.skip(_REASON, allow_module_level=True)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False, settings={"work_mem": "5MB"}) as server:
        yield server


def ask(address: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_server_has_the_requested_settings(server: PostgresServer) -> None:
    assert ask(server.address, "SHOW fsync") == [("off",)]
    assert ask(server.address, "SHOW work_mem") == [("5MB",)]


def test_committed_data_survives_every_end(server: PostgresServer) -> None:
    """Stopped, killed or restarted: data and address stay, and one that runs is left as it is."""
    address = server.new_database()
    ask(address, "CREATE TABLE kept (n integer)")
    for n, end in enumerate((server.stop, server.kill, server.restart)):
        ask(address, f"INSERT INTO kept VALUES ({n})")  # noqa: S608 (a number)
        end()
        server.start()
    server.start()
    assert ask(address, "SELECT n FROM kept") == [(0,), (1,), (2,)]


def test_killed_server_is_down_until_started(server: PostgresServer) -> None:
    """Also for those who were connected; ending it again does nothing."""
    with psycopg.connect(server.address) as connected:
        server.kill()
        server.kill()
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            connected.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.address)
    with pytest.raises(StoreError, match="PostgreSQL server on 127"):
        server.new_database()
    server.start()
    assert ask(server.address, "SELECT 1") == [(1,)]


def test_databases_and_schemas_are_empty_and_separate(server: PostgresServer) -> None:
    addresses = [server.new_database(), server.new_database(), server.new_schema(), server.new_schema()]
    for n, address in enumerate(addresses):
        ask(address, "CREATE TABLE mine (n integer)")
        ask(address, f"INSERT INTO mine VALUES ({n})")  # noqa: S608 (a number)
    assert [ask(address, "SELECT n FROM mine") for address in addresses] == [[(0,)], [(1,)], [(2,)], [(3,)]]


def test_connection_without_the_password_is_refused(server: PostgresServer) -> None:
    """Not over the loopback interface, and not over the socket in its folder either."""
    ((folder,),) = ask(server.address, "SHOW unix_socket_directories")
    password = str(conninfo_to_dict(server.address)["password"])
    for host in ("127.0.0.1", str(folder)):
        with pytest.raises(psycopg.OperationalError, match="authentication failed"):
            psycopg.connect(server.address, host=host, password="guessed")  # noqa: S106 (a wrong one)
    assert password not in repr(server)


def test_closing_leaves_nothing_behind() -> None:
    """And it cannot be started again. An address it never had is not made up."""
    server = PostgresServer(fsync=False)
    with pytest.raises(ConfigError, match="never started"):
        _ = server.address
    with server:
        ((folder,),) = ask(server.address, "SHOW unix_socket_directories")
        assert Path(str(folder)).exists()
    server.close()
    assert not Path(str(folder)).exists()
    with pytest.raises(StoreError, match="closed"):
        server.start()


def test_failed_start_has_a_reason() -> None:
    server = PostgresServer(settings={"work_mem": "plenty"})
    with pytest.raises(StoreError, match="work_mem"):
        server.start()
    server.close()


ROOT: Final = Path(__file__).parents[2]
_OWNER: Final = """
import sys, time
from tests.servers.postgres_server import PostgresServer
server = PostgresServer(fsync=False)
server.start()
print(server.address, flush=True)
time.sleep(600)
"""


def test_server_dies_with_the_parent_process() -> None:
    """Also when that is killed with SIGKILL, which nobody can prepare for; its folder goes as well."""
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        address = owner.stdout.readline().strip()
        ((folder,),) = ask(address, "SHOW unix_socket_directories")
        owner.kill()
    while Path(str(folder)).exists():
        time.sleep(0.01)
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(address)
