"""The list of `docs/reasons.md`: every reason with its meaning."""

from typing import Final

from turnwright_states import REASONS, REASONS_OF

BEGIN: Final = "<!-- reasons: made by `make reference` from turnwright_states.REASONS -->\n"
END: Final = "<!-- /reasons -->"


def page(text: str) -> str:
    """Return the page with a new list. Raises `ValueError` for a page without the marks."""
    before, marker, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not marker or not closed:
        raise ValueError(f"docs/reasons.md: its list must be between {BEGIN.strip()} and {END}")
    return f"{before}{BEGIN}\n{_list()}\n{END}{after}"


def _list() -> str:
    return "".join(
        f"- [`{reason}`](#{reason}): {meaning.means}\n"
        for reasons in REASONS_OF.values()
        for reason, meaning in REASONS.items()
        if reason in reasons
    )
