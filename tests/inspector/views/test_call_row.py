"""A call and its result in one line."""

import pytest
from pydantic import JsonValue
from tests.secrets_made import SECRETS

from turnwright.message import ToolCallPart, ToolResultPart
from turnwright_inspector.views.call_row import CallRow, call_row
from turnwright_states import CallStatus


def row_of(arguments: dict[str, JsonValue], text: str = "fine", status: CallStatus = CallStatus.OK) -> CallRow:
    result = ToolResultPart(call="call1", name="act", text=text, status=status)
    return call_row(ToolCallPart(id="call1", name="act", arguments=arguments), result, None, {})


def test_call_and_result_are_summarized_in_a_line() -> None:
    row = row_of({"word": "alpha", "most": 3, "deep": [{"a": None}]}, "alpha:\n  nothing found")
    assert row.made == 'act(word="alpha", most=3, deep=[{"a": null}])'
    assert (row.gave, row.status, row.seconds) == ("alpha: nothing found", "ok", None)
    assert row_of({}, status=CallStatus.ERROR).status == "error"


def test_long_texts_are_cut_and_excess_arguments_are_omitted() -> None:
    assert row_of({"text": "x" * 1000}).made == f'act(text="{"x" * 59}…)'
    row = row_of({f"name{number}": "some words of it" for number in range(50)}, "y" * 1000)
    assert row.made.endswith(", …)")
    assert len(row.made) < 260
    assert row.gave == f"{'y' * 200}…"


def test_call_without_a_result_is_open() -> None:
    row = call_row(ToolCallPart(id="call1", name="act"), None, None, {})
    assert (row.made, row.gave, row.status, row.result) == ("act()", "", "open", None)


@pytest.mark.parametrize("secret", SECRETS)
def test_summary_line_contains_no_part_of_a_secret(secret: str) -> None:
    for before in (0, 40, 55, 150, 190, 199):
        row = row_of({"a": "x" * before + " " + secret}, "y" * before + " " + secret)
        assert secret[:12] not in row.made + row.gave
    assert "correct" not in row_of({"password": "correct horse"}).made


def test_file_content_has_the_language_of_the_extension() -> None:
    rows = [row_of({"path": path}) for path in ("a/b.py", "B.YML", "c", "d.xyz")]
    assert [row.language for row in rows] == ["python", "yaml", "", ""]
    assert row_of({"path": 3}).language == ""
