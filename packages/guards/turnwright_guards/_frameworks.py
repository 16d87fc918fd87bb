"""The frameworks that the modules of this package guard. None of them is a dependency of it."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def framework(package: str) -> Iterator[None]:
    """Say which package to install, if an import within needs a module that is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        advice = f"this guard needs {(missing.name or package).partition('.')[0]}: pip install {package}"
        raise ModuleNotFoundError(advice, name=missing.name) from missing
