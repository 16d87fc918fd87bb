"""Secrets are kept out of texts, and out of what other libraries log while they talk for us."""

import base64
import html
import json
import logging
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.secrets_made import SECRETS

from turnwright.privacy.secrets import Secrets

SECRET = "hunter2-0123456789"  # noqa: S105 (nobody's)


def test_a_text_shows_no_secret() -> None:
    """Of two that overlap the longer is hidden, and not a part of it."""
    secrets = Secrets([SECRET, f"Bearer {SECRET}", ""])
    assert secrets.hide(f"I sent Bearer {SECRET}, with {SECRET} in it") == "I sent ***, with *** in it"
    assert SECRET not in repr(secrets)


KEYS = st.sampled_from(["sk-live-aB3dE6gH9jK2mN5p", "key+with/every=sign.0123~", SECRET, *SECRETS[:8]])


def longest_common(text: str, secret: str) -> int:
    """Return the longest run of the secret's characters in the text."""
    longest = 0
    for start in range(len(secret)):
        while secret[start : start + longest + 1] in text and start + longest < len(secret):
            longest += 1
    return longest


@given(KEYS, st.integers(0, 4), st.integers(0, 4))
def test_shortened_key_is_hidden(key: str, before: int, behind: int) -> None:
    cut = key[before : len(key) - behind]
    assume(len(cut) >= len(key) * 2 / 3)
    message = Secrets([key]).hide(f"your key <{cut}> is wrong")
    assert message == "your key <***> is wrong"


@given(KEYS, st.text(max_size=9), st.text(max_size=9), st.booleans())
def test_key_inside_base64_is_hidden_at_every_offset(key: str, before: str, behind: str, urlsafe: bool) -> None:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    alone = base64.b64encode(key.encode()).decode()
    encoded = encode(f"{before}{key}{behind}".encode()).decode()
    hidden = Secrets([key]).hide(f"Authorization: Basic {encoded}!")
    assert "***" in hidden
    # Of the key at most a character at each end is left, and that holds some bits of it only.
    assert longest_common(hidden, alone) < 8
    assert len(hidden) <= len("Authorization: Basic ***!") + len(encode((before + behind).encode())) + 6


@given(KEYS)
def test_key_is_hidden_in_every_escaping(key: str) -> None:
    hide = Secrets([key]).hide
    escaped = json.dumps(key)[1:-1]
    forms = [quote(key), quote(key, safe=""), quote_plus(key)]
    lower = [form.replace("%2B", "%2b").replace("%2F", "%2f").replace("%3D", "%3d") for form in forms]
    for form in (*forms, *lower, escaped, escaped.replace("/", "\\/"), repr(key.encode())[2:-1], html.escape(key)):
        assert hide(f"<{form}>") == "<***>"
    encoded = quote(base64.b64encode(b"user:" + key.encode()).decode(), safe="")
    assert len(hide(encoded)) <= len(encoded) - len(key)


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        # Words, addresses and paths are hidden whole, and not where only a part of them stands.
        ("administrator", "the administration"),
        ("http://localhost:8080/api", "http://localhost:8080/"),
        ("/home/user/project-1", "/home/user/project-2"),
        ("my-project-1234567", "my-project-9999999"),
        # What is short is looked for as it is.
        ("hunter2", "hunter and hunter1, aHVudGVyMg=="),
        ("sk-proj-aB3dE6gH9jK2mN5pQ8rT1vW4yZ7", "keys begin with sk-proj-, as c2stcHJvai0 does"),
    ],
)
def test_text_similar_to_a_secret_stays(secret: str, text: str) -> None:
    assert Secrets([secret]).hide(text) == text


@pytest.mark.slow
def test_text_is_scanned_once() -> None:
    """Also one that is made of the beginning of a secret, again and again."""
    secret = "a" * 99 + "1"
    assert Secrets([secret]).hide("a" * 1_000_000) == "***"
    assert Secrets([secret]).hide(("a" * 66 + " ") * 10_000) == ("a" * 66 + " ") * 10_000


def test_secrets_may_have_a_custom_mark() -> None:
    assert Secrets([SECRET], mark="[hidden]").hide(f"-{SECRET}-") == "-[hidden]-"


def test_a_logger_shows_no_secret_while_the_block_runs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logger = logging.getLogger("somebody.else")
    with Secrets([SECRET]).hidden_in("somebody.else"):
        logger.info("GET %s %d", f"https://x.example/?key={SECRET}", 200)
        logger.info("nothing to hide: %s", "this")
    logger.info("%s", SECRET)
    assert [record.getMessage() for record in caplog.records] == [
        "GET https://x.example/?key=*** 200",
        "nothing to hide: this",
        SECRET,
    ]
    assert logger.filters == []


def test_a_traceback_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("somebody.else")
    with Secrets([SECRET]).hidden_in("somebody.else"):
        try:
            int(SECRET)
        except ValueError:
            logger.exception("it failed")
    assert "ValueError: invalid literal for int() with base 10: '***'" in caplog.text
    assert SECRET not in caplog.text


def test_concurrent_hidings_do_not_disturb_each_other(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("somebody.else")
    first, second = (
        Secrets(["first-secret"]).hidden_in("somebody.else"),
        Secrets(["second-secret"]).hidden_in("somebody.else"),
    )
    with first:
        with second:
            logger.warning("first-secret, second-secret")
        logger.warning("first-secret, second-secret")
    assert [record.getMessage() for record in caplog.records] == ["***, ***", "***, second-secret"]


def test_unformattable_record_is_left_to_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("somebody.else")
    logger.propagate = False
    try:
        with Secrets([SECRET]).hidden_in("somebody.else"):
            logger.warning("%d", "no number")
    finally:
        logger.propagate = True
    assert caplog.records == []
