r"""Templates in the instructions of Markdown agents: `{{ metadata.user }}` becomes a value of the turn.

The names are `metadata.KEY` (also `metadata.KEY.KEY`), `session`, `agent`, `turn_id` and `step`. A `\{{` is a `{{` as
it is written. See docs/rules.md#dynamic-requests.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from turnwright.context import JsonObject, TurnContext
from turnwright.errors import ConfigError
from turnwright_states.payload import thaw

_FORM: Final = re.compile(r"\\\{\{|\{\{(?P<name>[^{}\n]*)\}\}|(?P<open>\{\{)")
_PLAIN: Final = ("session", "agent", "turn_id", "step")
_NAME: Final = re.compile(r"metadata(?:\.\w[\w-]*)+|" + "|".join(_PLAIN))
_NAMES: Final = f"metadata.KEY, {', '.join(_PLAIN)}"
_SHOWN: Final = 60


def is_template(text: str) -> bool:
    """Return whether the text has a `{{`."""
    return "{{" in text


def mistakes(text: str) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with a template: the index of its line, from 0, and the problem."""
    for match in _FORM.finditer(text):
        line = text.count("\n", 0, match.start())
        if match["open"] is not None:
            yield line, r"`{{` has no `}}` in its line: close it, or write `\{{` for two braces"
        elif match["name"] is not None and not _NAME.fullmatch(name := match["name"].strip()):
            yield line, rf"`{{{{ {name[:_SHOWN]} }}}}` is unknown: write one of {_NAMES}, or `\{{{{` for two braces"


def render_template(text: str, context: TurnContext) -> str:
    """Return the text of a turn. Raises `ConfigError`, naming the key, for metadata that the turn does not have."""
    return _FORM.sub(lambda match: _read_value(match, context), text)


def check_template(text: str, metadata: JsonObject) -> None:
    """Raise `ConfigError` for a mistake in a template, and for a key that it uses and the metadata lack."""
    for line, mistake in mistakes(text):
        raise ConfigError(f"the instructions: line {line + 1}: {mistake}")
    for match in _FORM.finditer(text):
        name = (match["name"] or "").strip()
        if name.startswith("metadata."):
            _read_metadata(name, metadata)


def _read_value(match: re.Match[str], context: TurnContext) -> str:
    if match["name"] is None:
        return "{{"
    name = match["name"].strip()
    if not name.startswith("metadata.") and name not in _PLAIN:
        raise ConfigError(f"the instructions use `{{{{ {name} }}}}`, which is unknown: write one of {_NAMES}")
    value = _read_metadata(name, context.metadata) if name not in _PLAIN else getattr(context, name)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False)


def _read_metadata(name: str, metadata: JsonObject) -> JsonValue:
    value: object = metadata
    for key in name.split(".")[1:]:
        if not isinstance(value, Mapping) or key not in value:
            raise ConfigError(
                f"the instructions use `{{{{ {name} }}}}`, and the turn's metadata have no {key!r}:"
                " give it with run(..., metadata={...})"
            )
        value = value[key]
    return value  # type: ignore[return-value]  # metadata are JSON
