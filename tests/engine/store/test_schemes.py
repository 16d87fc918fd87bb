"""The schemes of stores: those that a package adds by an entry point, and what is said of one that is broken."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from tests.added_packages import install
from tests.servers.forked_python import Python

from turnwright.errors import ConfigError
from turnwright.store import MemoryStore, open_store
from turnwright.store.address import GROUP, SCHEMES, StoreScheme, find_scheme, outlives_process, split_file

#: A store in memory that reads its turns from no file, but has the address of one.
STORE = """
from turnwright.errors import ConfigError
from turnwright.store import MemoryStore, StoreScheme

class OtherStore(MemoryStore):
    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

def open_other(address: str, *, create: bool) -> OtherStore:
    if address.endswith("nowhere") and not create:
        raise ConfigError("there is no store at nowhere")
    return OtherStore(address)

OTHER = StoreScheme(
    name="other", opener="other_store:open_other", help="another store", example="other://place", migrates=False
)
WRONG_OPENER = StoreScheme(name="wrong", opener="other_store:nothing", help="no store", example="wrong:x")
NO_SCHEME = "a text"
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a package that adds a good scheme and four broken ones, and one that adds one twice."""
    entries = {
        "other": "other_store:OTHER",
        "wrong": "other_store:WRONG_OPENER",
        "text": "other_store:NO_SCHEME",
        "misnamed": "other_store:OTHER",
        "gone": "no_such_module:SCHEME",
        "twice": "other_store:OTHER",
        "sqlite": "other_store:OTHER",
    }
    install(tmp_path, "other-store", GROUP, entries, STORE)
    install(tmp_path, "second-store", GROUP, {"twice": "second_store:SCHEME"}, "")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other_store", raising=False)
    return tmp_path


@pytest.mark.usefixtures("packages")
def test_store_of_a_package_opens_by_address() -> None:
    store = open_store("other://place")
    assert isinstance(store, MemoryStore)
    assert (type(store).__name__, vars(store)["place"]) == ("OtherStore", "other://place")
    with pytest.raises(ConfigError, match="there is no store at nowhere"):
        open_store("other://nowhere", create=False)


@pytest.mark.usefixtures("packages")
def test_built_in_scheme_cannot_be_replaced() -> None:
    assert find_scheme("sqlite:///turns.db") in SCHEMES


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("gone:x", r"`gone = no_such_module:SCHEME` \(turnwright.stores\) of the package other-store cannot be loaded"),
        ("text:x", "is not a turnwright.store.address.StoreScheme of that name, but 'a text': upgrade or uninstall it"),
        ("misnamed:x", "of the package other-store is not a .*StoreScheme of that name"),
        ("twice:x", "'twice' is added by other-store and by second-store: uninstall all but one"),
        ("wrong:x", "store wrong:...: other_store cannot be used .*install what its package needs"),
    ],
)
def test_broken_entry_point_is_named_and_affects_no_other(address: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_store(address)
    assert outlives_process("other://place")
    assert isinstance(open_store("other://place"), MemoryStore)


@pytest.mark.usefixtures("packages")
def test_unknown_scheme_is_refused_with_all_known_schemes() -> None:
    with pytest.raises(ConfigError) as error:
        open_store("mysql:///x")
    message = str(error.value)
    assert "sqlite:///relative.db" in message
    assert "postgresql://user@host/name (pip install 'turnwright[postgres]')" in message
    assert "gone:..., misnamed:..., other:..., text:..., twice:..., wrong:..." in message


@pytest.mark.usefixtures("packages")
def test_store_without_notifications_is_refused_for_notify() -> None:
    for address in ("other://place", "memory:"):
        with pytest.raises(ConfigError, match="cannot notify"):
            open_store(address, notify=True)


def test_only_a_store_in_a_file_has_a_path() -> None:
    assert split_file("sqlite:///turns.db?durability=normal") == ("sqlite:///", "turns.db?durability=normal")
    for address in ("memory:", "postgresql:///turns", "sqlite:///", "sqlite:x:///y", "nobody:///x"):
        assert split_file(address) == (address, "")


def test_only_memory_stores_end_with_the_process() -> None:
    assert not outlives_process("memory:")
    assert outlives_process("sqlite:///turns.db")
    assert outlives_process("a name that somebody gave it")


@pytest.mark.slow
def test_command_line_uses_the_store_of_a_package(packages: Path, python: Python) -> None:
    """With a model of the same kind: both are found by the entry points of one installed package."""
    model = (
        "from turnwright.model import Provider, ScriptedModel\n"
        "def open_other(model): return ScriptedModel(f'I am {model}.', name=model)\n"
        "OTHER = Provider(name='other', opener='other_models:open_other', help='other:ID')\n"
    )
    install(packages, "other-models", "turnwright.providers", {"other": "other_models:OTHER"}, model)

    def turnwright(*arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {"PATH": os.defpath, "PYTHONPATH": str(packages)}
        return python.run("-m", "turnwright", *arguments, env=environment, folder=packages)

    done = turnwright("run", "hi", "--model", "other:x", "--store", "other://place")
    assert (done.returncode, "I am x." in done.stdout) == (0, True), done.stderr
    migrated = turnwright("migrate", "--store", "other://place")
    assert (migrated.returncode, migrated.stdout) == (0, "other://place: another store has nothing to migrate\n")


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_opener_of_a_built_in_scheme_exists(scheme: StoreScheme) -> None:
    module, _, name = scheme.opener.partition(":")
    assert callable(getattr(import_module(module), name))
