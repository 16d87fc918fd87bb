"""A full disk: the operating system refuses to write, in the middle of a page if need be."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Limit every file of this process to `size` bytes during the block; then there is space again.

    Writes are cut short and then refused (`EFBIG`), as on a disk that has no block left, so that SQLite finds half a
    page in its log. It holds for every file, those of your test runner as well: use it in a `DriverProcess`. It is the
    process's limit `RLIMIT_FSIZE`; raises `ValueError` for a size above the hard limit.
    """
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
