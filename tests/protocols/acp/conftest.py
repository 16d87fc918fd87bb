"""These tests need the SDK of ACP, which has no release for Python 3.15: they are not collected where it is missing."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("acp") else ["test_*.py"]
