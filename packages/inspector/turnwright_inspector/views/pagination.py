"""Pages of a tab's rows: the shown rows, and the places of the earlier and later ones."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """The rows `first` to `last` of `total`, counted from 1.

    An address has where it ends, as `until`: `earlier` and `later` are those of the next ones, None where there is
    none. Without one it ends at `rests`.
    """

    first: int
    last: int
    total: int
    rests: int
    earlier: int | None
    later: int | None

    @classmethod
    def of(cls, total: int, size: int, until: int | None, rows: tuple[int, int] | None = None) -> "Window":
        """The window of `size` rows that ends at `until`; else at the last row, or where all it can of `rows` is.

        Where a tenth more is all there is, the window has all rows.
        """
        size = max(size, total) if total <= size + size // 10 else size
        full = min(size, total)
        rests = total if rows is None else max(min(rows[1], rows[0] + size - 1), full)
        last = rests if until is None else max(min(until, total), full)
        first = last - full + 1
        return cls(
            first=first,
            last=last,
            total=total,
            rests=rests,
            earlier=first - 1 if first > 1 else None,
            later=min(last + size, total) if last < total else None,
        )

    @property
    def part(self) -> slice:
        return slice(self.first - 1, self.last)
