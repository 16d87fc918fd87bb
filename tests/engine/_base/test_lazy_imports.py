"""Names that a package imports when somebody asks for them."""

import subprocess
import sys

import pytest

import turnwright
import turnwright.agents.markdown
import turnwright.model
import turnwright.model.openai_chat.client
import turnwright.store
import turnwright.store.sqlite.store
from turnwright._base.lazy_imports import lazy_imports


def output(code: str) -> str:
    """Return the output of a new process."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_lazy_name_is_the_object_of_the_module() -> None:
    assert turnwright.load_agents is turnwright.agents.markdown.load_agents
    assert turnwright.model.OpenAIChat is turnwright.model.openai_chat.client.OpenAIChat
    assert turnwright.store.SqliteStore is turnwright.store.sqlite.store.SqliteStore


def test_lazy_name_is_looked_up_once() -> None:
    assert output("import turnwright; turnwright.Compact; print('Compact' in vars(turnwright))") == "True"


def test_lazy_name_is_listed_before_the_first_use() -> None:
    code = "import turnwright; print('Compact' in dir(turnwright), 'Compact' in vars(turnwright))"
    assert output(code) == "True False"


def test_star_import_imports_every_lazy_name() -> None:
    code = "from turnwright import *; from turnwright.model import *; print(Compact.__name__, OpenAIChat.__name__)"
    assert output(code) == "Compact OpenAIChat"


def test_missing_name_is_an_ordinary_import_error() -> None:
    get, _ = lazy_imports("turnwright", {".certificate": "Certificate"})
    with pytest.raises(AttributeError, match="module 'turnwright' has no attribute 'Bogus'") as raised:
        get("Bogus")
    assert (raised.value.name, raised.value.obj) == ("Bogus", turnwright)
    code = "try: from turnwright.model import Bogus\nexcept ImportError as error: print(error.name, str(error)[:26])"
    assert output(code) == "turnwright.model cannot import name 'Bogus'"


def test_missing_dependency_is_reported_at_each_import() -> None:
    code = (
        "import sys; sys.modules['sqlite3'] = None\n"
        "from turnwright import Engine; Engine(store='memory:')\n"
        "try: from turnwright.store import SqliteStore\n"
        "except ImportError as error: print(error.name)\n"
        "try: Engine(store='sqlite:///turns.db')\n"
        "except ImportError as error: print(error.name)\n"
    )
    assert output(code).splitlines() == ["sqlite3", "sqlite3"]
