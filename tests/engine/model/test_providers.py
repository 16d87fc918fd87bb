"""The providers of models: built in, or added by a package's entry point, and what is said of one that is broken."""

import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from tests.added_packages import install
from typer.testing import CliRunner

from turnwright.cli.decode import decode
from turnwright.cli.options import model_named, open_models
from turnwright.errors import ConfigError
from turnwright.model.openai_chat.client import OpenAIChat
from turnwright.model.providers import GROUP, PROVIDERS, Provider, find_decoder, find_provider, open_model, split_name
from turnwright.otel.provider import provider_of, streams

PROVIDER = """
from turnwright.model import Provider, ScriptedModel
from turnwright.model.openai_chat.stream import ChatStream

class OtherModel(ScriptedModel):
    provider_name = "other.ai"
    always_streams = True

def open_other(model, *, base_url=None, timeout=None):
    made = OtherModel("Done.", name=model)
    made.options = (base_url, timeout)
    return made

OTHER = Provider(
    name="other",
    opener="other_models:open_other",
    help="other:ID",
    options=frozenset({"base_url", "timeout"}),
    decoder="other_models:ChatStream",
)
WRONG = Provider(name="wrong", opener="other_models:nothing", help="wrong:ID")
NO_PROVIDER = 5
"""


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package on the path that adds a good provider and broken ones, and another that adds one of the same name."""
    entries = {
        "other": "other_models:OTHER",
        "wrong": "other_models:WRONG",
        "number": "other_models:NO_PROVIDER",
        "gone": "no_such_module:PROVIDER",
        "twice": "other_models:OTHER",
        "anthropic": "other_models:OTHER",
    }
    install(tmp_path, "other-models", GROUP, entries, PROVIDER)
    install(tmp_path, "second-models", GROUP, {"twice": "second_models:PROVIDER"}, "")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other_models", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8080/v1")


def test_package_model_is_made_by_full_name_with_the_set_options() -> None:
    model = open_model("other:x:y", base_url="http://there", timeout=2.5)
    assert (model.name, vars(model)["options"]) == ("x:y", ("http://there", 2.5))
    assert vars(open_model("other:x"))["options"] == (None, None)
    assert model_named("other:x", None) == "other:x"


def test_the_address_in_openais_variable_is_not_another_providers() -> None:
    assert vars(open_model("other:x", base_url="http://localhost:8080/v1"))["options"] == (None, None)


def test_a_sub_agent_may_name_a_model_of_a_package() -> None:
    """It is not asked at the address of the turn's own model."""
    _, find = open_models("small", None, "http://elsewhere/v1")
    assert vars(find("other:x"))["options"] == (None, None)


def test_telemetry_asks_the_class_of_a_model() -> None:
    model = open_model("other:x")
    assert (provider_of(model), streams(model)) == ("other.ai", True)


@pytest.mark.parametrize("name", ["qwen3:8b", "gpt-5-mini", "other", "local:x", "anthropic"])
def test_name_without_a_provider_is_a_chat_completions_id(name: str) -> None:
    provider, model = split_name(name)
    assert (provider.name, model) == ("openai-chat", name)
    assert isinstance(open_model(name), OpenAIChat)


def test_id_of_an_unknown_provider_is_not_sent_to_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id of another library, such as `google:gemini`. The error of OpenAI would be about a key or an unknown id."""
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(
        ConfigError, match=r"no provider 'google' \(openai-chat, .*: write .*, pydantic-ai:google:gemini,"
    ):
        open_model("google:gemini")
    assert open_model("google:gemini", base_url="http://there").name == "google:gemini"
    for fine in ("ft:gpt-5-mini:me::1", "openai-chat:a:b", "gpt-5-mini"):
        assert isinstance(open_model(fine), OpenAIChat)


@pytest.mark.parametrize("name", ["gpt-5-mini", "openai-responses:gpt-5-mini", "claude-sonnet-4-5"])
def test_named_model_without_a_key_needs_a_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigError, match=r": set (OPENAI|ANTHROPIC)_API_KEY, or name another server in "):
        open_model(name)


def test_default_provider_has_a_prefix() -> None:
    """So that an id can be asked for which begins like the name of an installed provider."""
    assert open_model("openai-chat:other:x").name == "other:x"


def test_a_built_in_provider_cannot_be_taken() -> None:
    provider = find_provider("anthropic")
    assert provider is not None
    assert provider.opener.startswith("turnwright.")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone:x", r"`gone = no_such_module:PROVIDER` \(turnwright.providers\) of the package other-models cannot be"),
        ("number:x", "is not a turnwright.model.providers.Provider of that name, but 5: upgrade or uninstall it"),
        ("twice:x", "'twice' is added by other-models and by second-models: uninstall all but one"),
        ("wrong:x", "provider wrong: other_models:nothing cannot be used .*install what its package needs"),
    ],
)
def test_broken_entry_point_is_named_and_breaks_no_other_package(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_model(name)
    assert open_model("other:x").name == "x"


def test_the_streams_of_a_package_are_decoded(tmp_path: Path) -> None:
    body = tmp_path / "body.sse"
    body.write_text('data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    app = typer.Typer()
    app.command()(decode)
    done = CliRunner().invoke(app, ["--api", "other", str(body)])
    assert (done.exit_code, '"text":"a"' in done.stdout.replace(" ", "")) == (0, True)


@pytest.mark.parametrize("api", ["telepathy", "wrong", "local"])
def test_unknown_api_is_refused_with_the_known_apis(api: str) -> None:
    with pytest.raises(
        ConfigError, match="use openai-chat, openai-responses, anthropic-messages, gone, number, other, twice, wrong"
    ):
        find_decoder(api)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_opener_and_decoder_of_a_built_in_provider_exist(provider: Provider) -> None:
    for module, _, name in (place.partition(":") for place in (provider.opener, provider.decoder) if place):
        assert callable(getattr(import_module(module), name))
