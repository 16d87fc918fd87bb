"""The mapping of settings to the fields of a provider's requests.

Each provider has one function, a `SettingsMapping`. Its encoder adds `body` to the request, and its model reports
`unsupported` before the turn begins, so the two cannot differ. `max_tokens` is not mapped: the request has it.
"""

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol, runtime_checkable

from pydantic import JsonValue

from turnwright._base.words import explain_json_error
from turnwright.errors import ConfigError

from .capabilities import Capabilities
from .model_settings import ModelSettings
from .protocol import Model

_LOG = logging.getLogger(__name__)


class MappedSettings(NamedTuple):
    """Settings as fields of a request, and the reason for each setting that is not sent, by name."""

    body: dict[str, JsonValue]
    unsupported: dict[str, str]


SettingsMapping = Callable[[ModelSettings], MappedSettings]

_NOT_SUPPORTED: Final = "the model or its server does not support it"
_ONE_CALL: Final = "the model makes one call at a time"
_UNKNOWN: Final = "the model does not say which settings it sends (it has no `unsupported_settings`)"


@runtime_checkable
class _Reports(Protocol):
    def unsupported_settings(self, settings: ModelSettings) -> Mapping[str, str]: ...


def unsupported_settings(model: object, settings: ModelSettings) -> Mapping[str, str]:
    """Return the reason for each setting that this model does not send, by name.

    Raises `ConfigError` for settings that the request itself sets.
    """
    if isinstance(model, _Reports):
        return model.unsupported_settings(settings)
    return dict.fromkeys(settings.given, _UNKNOWN)


def check_settings(
    model: Model, settings: ModelSettings, *, strict: bool, known_warnings: set[tuple[str, str]]
) -> None:
    """Warn of each setting that the model does not send, once for each name in `known_warnings`, to which it is added.

    Raises `ConfigError` instead if `strict`, and always for settings that the request itself sets.
    """
    complaints = unsupported_settings(model, settings)
    if complaints and strict:
        problems = "; ".join(f"{name}: {why}" for name, why in complaints.items())
        raise ConfigError(
            f"model {model.name!r} cannot use these settings: {problems}. Remove them, or use strict_settings=False"
        )
    for name, why in complaints.items():
        if (model.name, name) not in known_warnings:
            known_warnings.add((model.name, name))
            _LOG.warning("model %s: the setting %s is not sent: %s", model.name, name, why)


def select_supported(settings: ModelSettings, capabilities: Capabilities) -> tuple[ModelSettings, dict[str, str]]:
    """Return the settings that these capabilities allow, and the reason for each of the others."""
    names = settings.given.keys() & capabilities.unsupported_settings
    if "thinking" in settings.given and capabilities.thinking is None:
        names |= {"thinking"}
    problems = dict.fromkeys(sorted(names), _NOT_SUPPORTED)
    if settings.parallel_tool_calls and not capabilities.parallel_tool_calls:
        problems["parallel_tool_calls"] = _ONE_CALL
    if not problems:
        return settings, {}
    fields = ModelSettings.model_fields
    default = {name: fields[name].get_default(call_default_factory=True) for name in problems}
    return settings.model_copy(update=default), problems


def map_openai_settings(
    settings: ModelSettings, capabilities: Capabilities, names: Collection[str]
) -> tuple[ModelSettings, MappedSettings]:
    """Return the settings that the capabilities allow, and the mapping of those `names` that OpenAI's APIs share.

    These APIs cache prompts by themselves, so `cache` sends nothing: `auto` is what happens anyway.
    """
    supported_settings, problems = select_supported(settings, capabilities)
    if supported_settings.cache not in (None, "auto"):
        problems["cache"] = f"{supported_settings.cache!r} cannot be requested: the provider caches by itself"
    body: dict[str, JsonValue] = {
        name: getattr(supported_settings, name) for name in names if name in supported_settings.given
    }
    return supported_settings, MappedSettings(body, problems)


def effort_of(thinking: bool | str | int) -> str | None:
    """Return the level of effort of a setting, as OpenAI's APIs name it; None for a budget in tokens."""
    if isinstance(thinking, bool):
        return "medium" if thinking else "none"
    return thinking if isinstance(thinking, str) else None


#: The reason why a server that takes a level of effort cannot take a budget.
NO_BUDGET: Final = "{} tokens: the server takes a level of effort, not a budget"


def extra_of(settings: ModelSettings, reserved_fields: Collection[str]) -> dict[str, JsonValue]:
    """Return the settings' own fields of the request. Raises `ConfigError` for one in `reserved_fields`."""
    return checked_extra(settings.extra_body, reserved_fields, "model_settings.extra_body")


def checked_extra(
    extra_body: Mapping[str, JsonValue] | None, reserved_fields: Collection[str], name: str = "extra_body"
) -> dict[str, JsonValue]:
    """Check a caller's extra fields for every request. `name` is the option's name, for errors.

    Raises `ConfigError` where it is not JSON or names a field in `reserved_fields`.
    """
    if not isinstance(extra_body, Mapping | None):
        raise ConfigError(f"{name} must be a mapping of fields to values, not {extra_body!r}")
    extra = dict(extra_body or {})
    wrong = extra.keys() & set(reserved_fields)
    if wrong:
        raise ConfigError(f"{name} must not contain {', '.join(sorted(wrong))}: the request sets it")
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} cannot be written as JSON: {explain_json_error(error)}") from error
    return extra
