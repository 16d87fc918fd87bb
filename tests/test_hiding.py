"""Secrets are kept out of texts, and out of what other libraries log while they talk for us."""

import logging

import pytest

from turnwright.hiding import Secrets

SECRET = "hunter2-0123456789"  # noqa: S105 (nobody's)


def test_a_text_shows_no_secret() -> None:
    """Of two that overlap the longer is hidden, and not a part of it."""
    secrets = Secrets([SECRET, f"Bearer {SECRET}", ""])
    assert secrets.hide(f"I sent Bearer {SECRET}, with {SECRET} in it") == "I sent ***, with *** in it"
    assert SECRET not in repr(secrets)


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


def test_those_who_hide_side_by_side_do_not_disturb_each_other(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("somebody.else")
    one, two = (
        Secrets(["first-secret"]).hidden_in("somebody.else"),
        Secrets(["second-secret"]).hidden_in("somebody.else"),
    )
    with one:
        with two:
            logger.warning("first-secret, second-secret")
        logger.warning("first-secret, second-secret")
    assert [record.getMessage() for record in caplog.records] == ["***, ***", "***, second-secret"]


def test_a_record_that_cannot_be_written_out_is_left_to_its_handler(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("somebody.else")
    logger.propagate = False
    try:
        with Secrets([SECRET]).hidden_in("somebody.else"):
            logger.warning("%d", "no number")
    finally:
        logger.propagate = True
    assert caplog.records == []
