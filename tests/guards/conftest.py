"""Tests of a framework's guard are collected only in the framework's own environment (`make guards`)."""

from importlib.util import find_spec
from typing import Final

#: What a module of tests imports.
_FRAMEWORKS: Final = {
    "test_clients.py": ("anthropic", "openai"),
    "test_langchain.py": ("langchain",),
    "test_openai_agents.py": ("agents",),
}


def _is_installed(package: str) -> bool:
    """Whether a package can be imported. A folder of that name, such as `examples/agents`, is none."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


collect_ignore = [name for name, packages in _FRAMEWORKS.items() if not all(map(_is_installed, packages))]
