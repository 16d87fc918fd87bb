"""The table of `docs/reasons.md`: every reason with its outcome and its meaning."""

from typing import Final

from turnwright_states import REASONS, REASONS_OF

BEGIN: Final = "<!-- reasons: made by `make reference` from turnwright_states.REASONS -->\n"
END: Final = "<!-- /reasons -->"


def page(text: str) -> str:
    """Return the page with a new table. Raises `ValueError` for a page without the marks."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"docs/reasons.md: its table must be between {BEGIN.strip()} and {END}")
    return f"{before}{BEGIN}{_table()}{END}{after}"


def _table() -> str:
    rows = ["| reason | outcome | means |", "| --- | --- | --- |"]
    for outcome, reasons in REASONS_OF.items():
        for reason, meaning in REASONS.items():
            if reason in reasons:
                rows.append(f"| [`{reason}`](#{reason}) | `{outcome}` | {meaning.means} |")
    return "\n".join(rows) + "\n"
