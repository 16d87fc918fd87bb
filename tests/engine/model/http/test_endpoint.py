from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest
from pydantic import SecretStr

from turnwright.errors import ConfigError
from turnwright.model.anthropic.client import ANTHROPIC_API, AnthropicMessages
from turnwright.model.capabilities import Capabilities
from turnwright.model.http.client import HttpModel
from turnwright.model.http.endpoint import Api, Endpoint, opened_by_name
from turnwright.model.openai_chat.client import OPENAI_API, OpenAIChat
from turnwright.model.openai_responses.client import RESPONSES_API, OpenAIResponses

APIS = pytest.mark.parametrize(
    "api", [OPENAI_API, RESPONSES_API, ANTHROPIC_API], ids=["openai", "responses", "anthropic"]
)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for api in (OPENAI_API, ANTHROPIC_API):
        for variable in filter(None, (api.address_variable, api.key_variable, api.token_variable)):
            monkeypatch.delenv(variable, raising=False)


def key_of(endpoint: Endpoint) -> dict[str, str]:
    """The headers that say who asks."""
    return {name: value for name, value in endpoint.headers.items() if name in {"authorization", "x-api-key"}}


class TestOpenAI:
    def test_the_default_is_openai_and_needs_a_key(self) -> None:
        with pytest.raises(ConfigError, match="set OPENAI_API_KEY"):
            Endpoint.of(OPENAI_API)
        endpoint = Endpoint.of(OPENAI_API, api_key="sk-secret")
        assert (str(endpoint.url), endpoint.own) == (f"{OPENAI_API.address}/chat/completions", True)
        assert endpoint.headers == {"authorization": "Bearer sk-secret"}

    @pytest.mark.parametrize(
        ("base_url", "url"),
        [
            ("http://localhost:8080/v1/", "http://localhost:8080/v1/chat/completions"),
            ("http://host", "http://host/chat/completions"),
            ("http://host/v1/chat/completions", "http://host/v1/chat/completions"),
            ("http://host/v1/chat/completions/", "http://host/v1/chat/completions"),
        ],
    )
    def test_path_is_appended_to_the_address_unless_present(self, base_url: str, url: str) -> None:
        assert str(Endpoint.of(OPENAI_API, base_url=base_url).url) == url

    def test_the_environment_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        monkeypatch.setenv("OPENAI_BASE_URL", "https://host/v1")
        endpoint = Endpoint.of(OPENAI_API)
        assert (str(endpoint.url), dict(endpoint.headers)) == (
            "https://host/v1/chat/completions",
            {"authorization": "Bearer sk-secret"},
        )


class TestAnthropic:
    def test_the_default_is_anthropic_and_needs_a_key(self) -> None:
        with pytest.raises(
            ConfigError, match=f"no API key for {ANTHROPIC_API.address}: set ANTHROPIC_API_KEY.*ANTHROPIC_BASE_URL"
        ):
            Endpoint.of(ANTHROPIC_API)
        endpoint = Endpoint.of(ANTHROPIC_API, api_key="sk-secret")
        assert (str(endpoint.url), endpoint.own) == (f"{ANTHROPIC_API.address}/v1/messages", True)
        assert endpoint.headers == {"x-api-key": "sk-secret", "anthropic-version": "2023-06-01"}

    @pytest.mark.parametrize(
        ("base_url", "url"),
        [
            ("http://host", "http://host/v1/messages"),
            ("http://host/", "http://host/v1/messages"),
            ("http://host/v1", "http://host/v1/messages"),
            ("http://host/v1/", "http://host/v1/messages"),
            ("http://host/anthropic", "http://host/anthropic/v1/messages"),
            ("http://host/v1/messages", "http://host/v1/messages"),
            ("http://host/api/messages", "http://host/api/messages"),
        ],
    )
    def test_version_and_path_are_appended_unless_present(self, base_url: str, url: str) -> None:
        assert str(Endpoint.of(ANTHROPIC_API, base_url=base_url).url) == url

    def test_the_environment_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://host")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
        endpoint = Endpoint.of(ANTHROPIC_API)
        assert str(endpoint.url) == "https://host/v1/messages"
        assert key_of(endpoint) == {"x-api-key": "sk-secret"}

    def test_token_of_the_environment_is_sent_without_the_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It means a gateway, which the provider's own key is none of the business of."""
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "tok-secret")
        endpoint = Endpoint.of(ANTHROPIC_API, base_url="https://gateway")
        assert key_of(endpoint) == {"authorization": "Bearer tok-secret"}
        assert endpoint.secrets == {"tok-secret"}
        assert key_of(Endpoint.of(ANTHROPIC_API, api_key="sk-mine")) == {"x-api-key": "sk-mine"}

    def test_version_header_may_be_replaced(self) -> None:
        endpoint = Endpoint.of(ANTHROPIC_API, base_url="http://host", headers={"Anthropic-Version": "2030-01-01"})
        assert endpoint.headers == {"anthropic-version": "2030-01-01"}

    def test_unsendable_token_error_names_the_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "tok\n234")
        with pytest.raises(ConfigError, match="set ANTHROPIC_AUTH_TOKEN") as caught:
            Endpoint.of(ANTHROPIC_API)
        assert "234" not in str(caught.value)


@APIS
class TestEveryApi:
    def test_another_server_needs_no_key(self, api: Api) -> None:
        endpoint = Endpoint.of(api, base_url="http://localhost:8080")
        assert endpoint.headers == api.headers
        assert (endpoint.own, endpoint.loopback, endpoint.key_hint) == (
            False,
            True,
            f"set {api.key_variable}, or pass api_key",
        )

    @pytest.mark.parametrize(
        ("host", "is_here"),
        [
            *((host, True) for host in ("localhost", "vllm.localhost", "127.0.0.1", "[::1]", "[::]")),
            ("0.0.0.0", True),  # noqa: S104 (no server is bound to it)
            *((host, False) for host in ("host", "localhost.example", "evil-localhost", "10.0.0.1", "[fe80::1]")),
        ],
    )
    def test_address_of_this_machine_is_known(self, api: Api, host: str, *, is_here: bool) -> None:
        """Its requests go around the proxy of the environment."""
        assert Endpoint.of(api, base_url=f"http://{host}:8080/v1").loopback is is_here

    @pytest.mark.parametrize(("host", "own"), [("eu.{}", True), ("{}.evil.example", False), ("evil-{}", False)])
    def test_only_hosts_of_the_provider_count_as_own(self, api: Api, host: str, *, own: bool) -> None:
        assert Endpoint.of(api, base_url=f"https://{host.format(api.host)}", api_key="sk-secret").own is own

    def test_an_argument_goes_before_the_environment(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(api.key_variable, "sk-other")
        monkeypatch.setenv(api.address_variable, "https://other/v1")
        mine = Endpoint.of(api, base_url="http://host", api_key="sk-mine")
        assert (mine.shown_url, mine.secrets) == ("http://host", frozenset({"sk-mine"}))
        assert key_of(Endpoint.of(api, base_url="http://host", api_key="")) == {}

    def test_empty_variable_counts_as_unset(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(api.key_variable, "")
        monkeypatch.setenv(api.address_variable, " ")
        with pytest.raises(ConfigError, match="no API key"):
            Endpoint.of(api)

    def test_a_query_is_sent_and_not_shown(self, api: Api) -> None:
        endpoint = Endpoint.of(api, base_url="https://host/v1?api-version=1&key=hush-hush")
        assert str(endpoint.url) == f"https://host/v1{api.path}?api-version=1&key=hush-hush"
        assert endpoint.shown_url == "https://host/v1"
        assert "hush-hush" in endpoint.secrets

    def test_user_and_password_are_sent_and_not_shown(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(api.key_variable, "sk-other")
        endpoint = Endpoint.of(api, base_url="http://me:hush-hush@host/v1")
        assert key_of(endpoint) == {"authorization": "Basic bWU6aHVzaC1odXNo"}
        assert repr(endpoint) == endpoint.shown_url == "http://host/v1"
        assert {"hush-hush", "bWU6aHVzaC1odXNo"} <= endpoint.secrets
        assert "@" not in str(endpoint.url)

    def test_a_header_of_the_callers_goes_before_the_key(self, api: Api) -> None:
        headers = {"Authorization": "Token hush-hush"}
        endpoint = Endpoint.of(api, base_url="http://host", api_key="sk-unused", headers=headers)
        assert key_of(endpoint) == {"authorization": "Token hush-hush"}
        assert {"Token hush-hush", "hush-hush"} <= endpoint.secrets
        endpoint = Endpoint.of(api, base_url="http://host", api_key="sk-unused", headers={api.key_header: "hush-hush"})
        assert key_of(endpoint) == {api.key_header: "hush-hush"}


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
def test_invalid_address_is_refused(base_url: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as caught:
        Endpoint.of(OPENAI_API, base_url=base_url)
    assert "write it like http://localhost:8080/v1" in str(caught.value)


@APIS
def test_invalid_address_of_the_environment_is_refused_by_name(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(api.address_variable, "localhost:8080/v1")
    with pytest.raises(ConfigError, match=f"base URL in {api.address_variable} 'localhost:8080/v1' does not begin"):
        Endpoint.of(api)


@pytest.mark.parametrize("base_url", ["http://me:hush-hush@host:x", "host/v1?api_key=hush-hush"])
def test_a_refused_address_with_a_password_is_not_quoted(base_url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Endpoint.of(OPENAI_API, base_url=base_url)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


@APIS
@pytest.mark.parametrize("key", ["sk-\n1234", "sk-1234\n", " sk-1234", "sk-ü234"])
def test_unsendable_key_is_refused_and_not_quoted(api: Api, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names where the key came from."""
    with pytest.raises(ConfigError, match=r"API key has a character.*: pass as api_key the key alone$") as caught:
        Endpoint.of(api, base_url="http://host", api_key=key)
    assert "234" not in str(caught.value)
    monkeypatch.setenv(api.key_variable, key)
    with pytest.raises(ConfigError, match=f"API key has a character.*: set {api.key_variable} to the key alone$"):
        Endpoint.of(api, base_url="http://host")


@APIS
def test_model_opened_by_name_takes_the_key_from_the_environment(api: Api) -> None:
    """Nobody can pass an argument on the command line."""
    with opened_by_name():
        with pytest.raises(ConfigError, match=f": set {api.key_variable}, or name another server in "):
            Endpoint.of(api)
        assert Endpoint.of(api, base_url="http://host").key_hint == f"set {api.key_variable}"
    with pytest.raises(ConfigError, match=f": set {api.key_variable}, pass api_key, or name another server in "):
        Endpoint.of(api)


@pytest.mark.parametrize("headers", [{"x y": "1"}, {"": "1"}, {"x": "a\r\nb: c"}, {"x": "ü"}, {"x:": "1"}])
def test_unsendable_header_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="header"):
        Endpoint.of(OPENAI_API, base_url="http://host", headers=headers)


@pytest.mark.parametrize("client", [OpenAIChat, OpenAIResponses, AnthropicMessages])
@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"model": 5}, "model must be the model's id, not 5"),
        ({"model": 5, "capabilities": Capabilities()}, "model must be the model's id, not 5"),
        ({"model": " "}, "the model has no name"),
        ({"base_url": httpx.URL("http://me:sk-secret@host")}, "base_url must be text, not URL"),
        ({"api_key": SecretStr("sk-secret")}, "api_key must be text, not SecretStr"),
        ({"api_key": b"sk-secret"}, "api_key must be text, not bytes"),
        ({"headers": [("x-key", "sk-secret")]}, "headers must be a mapping of names to texts, not list"),
        ({"headers": {"x-key": SecretStr("sk-secret")}}, "the header 'x-key' must be text, not SecretStr"),
        ({"headers": {5: "sk-secret"}}, "the name of a header must be text, not int"),
        ({"first_byte_timeout": "30"}, "first_byte timeout must be a number of seconds, not '30'"),
        ({"idle_timeout": None}, "idle timeout must be a number of seconds, not None"),
        ({"transport": httpx.Client()}, "transport must be a transport of httpx that is async, not Client"),
        ({"tool_choice_first": "any"}, "tool_choice_first must be auto, required or none, not 'any'"),
    ],
)
def test_option_of_another_type_is_refused_by_name(
    client: Callable[..., HttpModel], options: dict[str, Any], fault: str
) -> None:
    """In a turn it would be an error of the engine. A value that may be secret is not shown."""
    with pytest.raises(ConfigError, match=fault) as caught:
        client(**{"model": "m", "base_url": "http://host", **options})
    assert "sk-secret" not in str(caught.value)


def test_option_of_one_client_is_checked() -> None:
    with pytest.raises(ConfigError, match="max_tokens_field must be one of"):
        OpenAIChat("m", base_url="http://host", max_tokens_field=cast("Any", "tokens"))
    with pytest.raises(ConfigError, match="max_tokens must be a number of tokens, not '9'"):
        AnthropicMessages("m", base_url="http://host", max_tokens=cast("Any", "9"))
