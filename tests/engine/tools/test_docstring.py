"""Parsing docstrings."""

from hypothesis import given
from hypothesis import strategies as st

from turnwright.tools.docstring import parse_docstring


def test_a_function_without_docstring_has_no_description() -> None:
    assert parse_docstring(None) == ("", {})


def test_the_description_is_all_paragraphs_before_the_first_section() -> None:
    text = """Read a file.

    Only text files:
      - a list stays in it.

    Returns:
        The text.
    """
    assert parse_docstring(text) == ("Read a file.\n\nOnly text files:\n  - a list stays in it.", {})


def test_google_arguments_are_read() -> None:
    text = """Move.

    Args:
        path (str): where from,
            with a note: in a second line
        to: where to

        *rest: left over
    Raises:
        OSError: on a full disk
    """
    assert parse_docstring(text).arguments == {
        "path": "where from, with a note: in a second line",
        "to": "where to",
        "rest": "left over",
    }


def test_rest_fields_are_read() -> None:
    text = """Move.

    :param path: where from,
        in two lines
    :param str to: where to
    :type to: str
    :returns: nothing
        at all
    :raises OSError: on a full disk
    """
    assert parse_docstring(text) == ("Move.", {"path": "where from, in two lines", "to": "where to"})


def test_numpy_parameters_are_read() -> None:
    text = """Move.

    Parameters
    ----------
    path : str, optional
        Where from.

        And more.
    x, y : int
        Coordinates.

    Returns
    -------
    int
        Nothing.
    """
    assert parse_docstring(text) == (
        "Move.",
        {"path": "Where from. And more.", "x": "Coordinates.", "y": "Coordinates."},
    )


def test_word_similar_to_a_section_stays_prose() -> None:
    text = "Returns the text.\n\nParameters\nare explained elsewhere."
    assert parse_docstring(text) == (text, {})


def test_an_argument_without_words_has_no_description() -> None:
    assert parse_docstring("Do.\n\nArgs:\n    x:\n").arguments == {}


def test_prose_after_a_section_belongs_to_no_argument() -> None:
    assert parse_docstring("Do.\n\nArgs:\n    x: one\nSee also: y.\n    z: not one").arguments == {"x": "one"}


_LINES = st.sampled_from(
    [
        "Args:",
        "    x: one",
        "        more",
        "",
        "Returns:",
        ":param y: two",
        "Parameters",
        "----------",
        "z : int",
        "words",
    ]
)


@given(st.lists(_LINES) | st.lists(st.text()))
def test_any_docstring_is_parsed_without_an_error(lines: list[str]) -> None:
    parsed = parse_docstring("\n".join(lines))
    assert all(parsed.arguments.values())
