import pytest

from turnwright.errors import ConfigError
from turnwright.model.endpoint import OPENAI, Endpoint


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_the_default_is_openai_and_needs_a_key() -> None:
    with pytest.raises(ConfigError, match="set OPENAI_API_KEY"):
        Endpoint.of()
    endpoint = Endpoint.of(api_key="sk-secret")
    assert (str(endpoint.url), endpoint.openai) == (f"{OPENAI}/chat/completions", True)
    assert endpoint.headers == {"authorization": "Bearer sk-secret"}


def test_another_server_needs_no_key() -> None:
    endpoint = Endpoint.of(base_url="http://localhost:8080/v1/")
    assert (str(endpoint.url), endpoint.headers) == ("http://localhost:8080/v1/chat/completions", {})
    assert not endpoint.openai


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://host/v1")
    endpoint = Endpoint.of()
    assert (str(endpoint.url), dict(endpoint.headers)) == (
        "https://host/v1/chat/completions",
        {"authorization": "Bearer sk-secret"},
    )


def test_an_argument_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://other/v1")
    assert dict(Endpoint.of(base_url="http://host", api_key="sk-mine").headers) == {"authorization": "Bearer sk-mine"}
    assert dict(Endpoint.of(base_url="http://host", api_key="").headers) == {}


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setenv("OPENAI_BASE_URL", " ")
    with pytest.raises(ConfigError, match="there is no API key"):
        Endpoint.of()


def test_a_query_is_sent_and_not_shown() -> None:
    endpoint = Endpoint.of(base_url="https://host/v1?api-version=1&key=hush-hush")
    assert str(endpoint.url) == "https://host/v1/chat/completions?api-version=1&key=hush-hush"
    assert endpoint.shown == "https://host/v1"
    assert "hush-hush" in endpoint.secrets


def test_the_whole_address_of_the_endpoint_may_be_given() -> None:
    assert str(Endpoint.of(base_url="http://host/v1/chat/completions").url) == "http://host/v1/chat/completions"


def test_user_and_password_are_sent_and_not_shown() -> None:
    endpoint = Endpoint.of(base_url="http://me:hush-hush@host/v1")
    assert endpoint.headers == {"authorization": "Basic bWU6aHVzaC1odXNo"}
    assert repr(endpoint) == endpoint.shown == "http://host/v1"
    assert {"hush-hush", "bWU6aHVzaC1odXNo"} <= endpoint.secrets
    assert "@" not in str(endpoint.url)


def test_a_header_of_the_callers_goes_before_the_key() -> None:
    endpoint = Endpoint.of(base_url="http://host", api_key="sk-unused", headers={"Authorization": "Token hush-hush"})
    assert endpoint.headers == {"authorization": "Token hush-hush"}
    assert {"Token hush-hush", "hush-hush"} <= endpoint.secrets


@pytest.mark.parametrize(
    ("base_url", "fault"),
    [
        ("", "does not begin with http"),
        ("localhost:8080/v1", "'localhost:8080/v1' does not begin with http"),
        ("ftp://host", "does not begin with http"),
        ("/v1", "does not begin with http"),
        ("http://", "names no server"),
        ("http://ho st/v1", "has a space"),
        ("http://host:99999", "port"),
        ("http://host:x", "cannot be read"),
        ("http://ho\nst", "cannot be read"),
        ("http://host/#v1", "fragment"),
    ],
)
def test_an_address_that_is_none_is_refused(base_url: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as caught:
        Endpoint.of(base_url=base_url)
    assert "write it like http://localhost:8080/v1" in str(caught.value)


def test_a_refused_address_with_a_password_is_not_quoted() -> None:
    with pytest.raises(ConfigError) as caught:
        Endpoint.of(base_url="http://me:hush-hush@host:x")
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("key", ["sk-\n1234", "sk-1234\n", " sk-1234", "sk-ü234"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_quoted(key: str) -> None:
    with pytest.raises(ConfigError, match="API key has a character") as caught:
        Endpoint.of(base_url="http://host", api_key=key)
    assert "234" not in str(caught.value)


@pytest.mark.parametrize("headers", [{"x y": "1"}, {"": "1"}, {"x": "a\r\nb: c"}, {"x": "ü"}, {"x:": "1"}])
def test_a_header_that_cannot_be_sent_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="header"):
        Endpoint.of(base_url="http://host", headers=headers)
