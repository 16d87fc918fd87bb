from datetime import UTC, datetime
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.model.http.retry_after import length_of, retry_after, wait_in_words

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC).timestamp()


def wait(headers: dict[str, str], status: int = 429, body_wait: float | None = None) -> float | None:
    return retry_after(headers, status=status, now=NOW, wait_in_body=body_wait)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "34s"}, 34),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"x-ms-retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after-ms": "-1"}, 0),
        ({"retry-after-ms": "x", "retry-after": "7"}, 7),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": "2026-03-01T12:00:05Z"}, 5),
        # A header that came twice.
        ({"retry-after": "3, 7"}, 7),
        ({"retry-after": "7,3"}, 7),
        ({"retry-after": "soon, 3"}, 3),
        ({"retry-after": f"{formatdate(NOW + 30, usegmt=True)}, 5"}, 30),
        ({"retry-after": f"5, {formatdate(NOW + 30, usegmt=True)}"}, 30),
        ({"retry-after-ms": "250, 300"}, 0.3),
        # However large, it is a number of seconds, and no date.
        ({"retry-after": "1000000000"}, 1_000_000_000),
        ({"retry-after": "1e9"}, 1_000_000_000),
        # What Python takes for a number, and HTTP does not.
        ({"retry-after": "1_000"}, None),
        ({"retry-after": "\u0661\u0662"}, None),
        ({"retry-after": "0x10"}, None),
        ({"retry-after": "1" * 50_000 + "x"}, None),
    ],
)
def test_explicit_wait_is_read_as_seconds_for_any_failure(headers: dict[str, str], seconds: float | None) -> None:
    assert [wait(headers, status) for status in (408, 429, 500, 503)] == [seconds] * 4


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        # Anthropic: a date.
        (
            {
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-requests-reset": "2026-03-01T12:00:01Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-03-01T12:00:41Z",
            },
            41,
        ),
        ({"anthropic-ratelimit-tokens-reset": "2026-03-01T11:59:00Z"}, None),
        # OpenAI, Groq, Cerebras: a length of time, or seconds.
        (
            {
                "x-ratelimit-remaining-requests": "14399",
                "x-ratelimit-reset-requests": "6m0s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "350ms",
            },
            0.35,
        ),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "1m12.5s"}, 1),
        ({"x-ratelimit-reset-requests-day": "33011.38", "x-ratelimit-reset-tokens-minute": "11.38"}, 11.38),
        # OpenRouter and others: seconds or milliseconds since 1970, or seconds left.
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 20:.0f}"}, 20),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{(NOW + 20) * 1000:.0f}"}, 20),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW - 20:.0f}"}, 0),
        ({"x-ratelimit-reset": "12"}, 12),
        # Mistral.
        ({"ratelimitbysize-remaining": "0", "ratelimitbysize-reset": "28"}, 28),
        # The IETF's draft, its older and its newer form.
        ({"ratelimit-limit": "100", "ratelimit-remaining": "0", "ratelimit-reset": "30"}, 30),
        ({"ratelimit": "limit=100, remaining=0, reset=30"}, 30),
        ({"ratelimit": '"burst";r=7;t=2, "daily";r=0;t=30'}, 30),
        ({"ratelimit": '"default";t=30'}, 30),
        ({"ratelimit": "nonsense"}, None),
        ({"x-ratelimit-reset": "later"}, None),
        # All that are spent must be full again; where none is said to be, the first that is full may do.
        ({"ratelimit": "a;r=0;t=3, b;r=0;t=9, c;r=1;t=1"}, 9),
        ({"x-ratelimit-reset-requests": "0s", "x-ratelimit-reset-tokens": "4s"}, 4),
    ],
)
def test_limits_with_a_reset_time_give_the_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert wait(headers) == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("status", [400, 408, 500, 502])
def test_reset_time_of_a_limit_is_ignored_for_other_failures(status: int) -> None:
    assert wait({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "12"}, status) is None


def test_explicit_wait_precedes_body_and_body_precedes_limits() -> None:
    limits = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}
    assert wait({**limits, "retry-after": "2"}, body_wait=5.0) == 2
    assert wait(limits, body_wait=5.0) == 5
    assert wait(limits) == 60


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("34s", 34),
        ("34.074824224s", 34.074824224),
        ("6m0s", 360),
        ("1h16m0.667s", 4560.667),
        ("350ms", 0.35),
        ("1m12.5s", 72.5),
        ("2d", 172_800),
        ("500us", 0.0005),
        ("20", 20),
        ("20.5", 20.5),
        ("-1", 0),
        ("", None),
        ("s", None),
        ("5 apples", None),
        ("1s later", None),
    ],
)
def test_a_length_of_time_is_read(text: str, seconds: float | None) -> None:
    assert length_of(text) == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached. Limit: 3 / min. Please try again in 20s. Visit us.", 20),
        ("on tokens per min (TPM): Limit 6000, Used 5950. Please try again in 1.2s.", 1.2),
        ("Please try again in 350ms.", 0.35),
        ("Please try again in 6m0s.", 360),
        ("Please try again in 1m12.5s.", 72.5),
        ("Please retry after 6 seconds.", 6),
        ("Please retry in 34.074824224s.", 34.074824224),
        ("Please wait 5 minutes and 30 seconds.", 330),
        ("try again in 2 hours", 7200),
        ("Try again in 500 milliseconds", 0.5),
        ("Please try again in a moment.", None),
        ("Please wait 5 apples.", None),
        ("It took 5 seconds.", None),
        ("", None),
    ],
)
def test_a_sentence_may_say_how_long_to_wait(words: str, seconds: float | None) -> None:
    assert wait_in_words(words) == (seconds if seconds is None else pytest.approx(seconds))


@given(
    st.dictionaries(
        st.sampled_from(
            ["retry-after", "retry-after-ms", "x-ratelimit-reset", "x-ratelimit-remaining", "ratelimit", "x-reset"]
        ),
        st.text() | st.floats().map(str) | st.integers().map(str) | st.datetimes().map(str),
    ),
    st.text(),
)
def test_wait_is_none_or_a_number_of_at_least_0(headers: dict[str, str], words: str) -> None:
    for seconds in (wait(headers), wait_in_words(words), length_of(words)):
        assert seconds is None or 0 <= seconds < float("inf")
