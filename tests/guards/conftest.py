"""Tests of a framework's guard are collected only in the framework's own environment (`make guards`)."""

from importlib.util import find_spec
from typing import Final

#: What a module of tests imports.
_FRAMEWORKS: Final = {
    "test_clients.py": ("anthropic", "openai"),
    "test_langchain.py": ("langchain",),
    "test_openai_agents.py": ("agents",),
}
collect_ignore = [name for name, packages in _FRAMEWORKS.items() if None in map(find_spec, packages)]
