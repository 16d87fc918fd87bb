import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.model.http.error_body import ErrorBody, plain_name, understand

JSON_VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["error", "metadata", "raw", "details"]), inner),
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("Words", ErrorBody("Words")),
        ({"error": {"message": "Words", "code": "X"}}, ErrorBody("Words", frozenset({"x"}))),
        ({"error": {"message": "Words", "code": 429}}, ErrorBody("Words", status=429)),
        (
            {"type": "error", "error": {"type": "overloaded_error"}},
            ErrorBody("", frozenset({"error", "overloaded_error"})),
        ),
        ({"error": "busy", "error_type": "overloaded"}, ErrorBody("busy", frozenset({"overloaded"}))),
        (
            {"Message": "Words", "__type": "com.amazon#ThrottlingException"},
            ErrorBody("Words", frozenset({"throttlingexception"})),
        ),
        ({"success": False, "errors": [{"message": "Words", "code": 3040}]}, ErrorBody("Words")),
    ],
)
def test_message_names_and_status_are_read_in_any_shape(body: JsonValue, expected: ErrorBody) -> None:
    assert understand(body) == expected


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        ({"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}]}, 34.07),
        ({"message": "Please try again in 1.2s."}, 1.2),
        ({"retry_after": 20}, 20),
        ({"metadata": {"retry_after_seconds": "3"}}, 3),
        ({"estimated_time": 20.5}, 20.5),
        # What is a field goes before what is a sentence.
        ({"details": [{"retryDelay": "5s"}], "message": "Please retry in 7s."}, 5),
        ({"retry_after": None, "message": "no"}, None),
        ({"retry_after": True}, None),
        ({"details": "none"}, None),
    ],
)
def test_a_body_may_say_how_long_to_wait(error: JsonValue, seconds: float | None) -> None:
    assert understand({"error": error}).wait == seconds


def test_message_of_the_provider_behind_a_gateway_is_shown() -> None:
    behind = json.dumps({"error": {"message": "Too much. Please try again in 2s.", "code": "rate_limit_exceeded"}})
    metadata: JsonValue = {"provider_name": "X", "raw": behind}
    error: dict[str, JsonValue] = {"message": "Provider returned error", "code": 429, "metadata": metadata}
    assert understand({"error": error}) == ErrorBody(
        "Too much. Please try again in 2s.", frozenset({"rate_limit_exceeded"}), 429, 2.0
    )
    assert understand({"error": {**error, "metadata": {"raw": "not JSON"}}}).words == "not JSON"
    assert understand({"error": {**error, "metadata": {"raw": None}}}).words == "Provider returned error"


def test_headers_passed_on_by_a_gateway_are_kept() -> None:
    error: JsonValue = {"metadata": {"headers": {"X-RateLimit-Reset": "1741305600000", "x": 1}}}
    assert understand({"error": error}).headers == {"x-ratelimit-reset": "1741305600000"}


@pytest.mark.parametrize(
    "name",
    ["ThrottlingException", "com.amazon.coral#ThrottlingException", "ThrottlingException:http://internal.amazon.com/"],
)
def test_plain_name_drops_namespace_and_address(name: str) -> None:
    assert plain_name(name) == "throttlingexception"


@given(JSON_VALUES)
def test_any_body_is_understood(body: JsonValue) -> None:
    assert isinstance(understand(body).words, str)


def test_parsing_of_an_error_body_is_bounded() -> None:
    """Looking for what the words mean costs time for each of them."""
    endless = "x" * 1_000_000
    bodies: list[JsonValue] = [endless, {"error": endless}, {"error": {"message": endless}}]
    for body in bodies:
        assert len(understand(body).words) == 100_000
    reasons: list[JsonValue] = [{"reason": str(number)} for number in range(1000)]
    assert len(understand({"error": {"details": reasons}}).names) == 100
    details: list[JsonValue] = [{"msg": "x"}] * 1000
    assert understand({"detail": details}).words.count("x") == 100
