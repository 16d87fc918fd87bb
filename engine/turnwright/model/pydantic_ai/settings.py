"""Settings in pydantic-ai's form. No I/O."""

from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue
from pydantic_ai.models import Model

from turnwright.model.capabilities import Capabilities
from turnwright.model.model_settings import ModelSettings
from turnwright.model.settings_mapping import MappedSettings, extra_of, supported

#: The settings that have the same names there.
_SAME: Final = ("temperature", "top_p", "seed", "parallel_tool_calls")
_TIERS: Final = ("auto", "default", "flex", "priority")
_CACHE: Final[dict[str, JsonValue]] = {"auto": True, "5m": "5m", "1h": "1h", "off": False}


def map_pydantic_settings(settings: ModelSettings, model: Model, capabilities: Capabilities) -> MappedSettings:
    """Map settings to those of pydantic-ai, as far as every model behind this one sends them."""
    allowed, unsupported = supported(settings, capabilities)
    body: dict[str, JsonValue] = {name: getattr(allowed, name) for name in _SAME if name in allowed.given}
    if allowed.stop_sequences:
        body["stop_sequences"] = [*allowed.stop_sequences]
    if allowed.extra_body:
        body["extra_body"] = {name: value for name, value in extra_of(allowed, ()).items() if value is not None}
    if allowed.service_tier in _TIERS:
        body["service_tier"] = allowed.service_tier
    elif allowed.service_tier is not None:
        unsupported["service_tier"] = f"{allowed.service_tier!r}: pydantic-ai knows {', '.join(_TIERS)}"
    models = [*models_behind(model)]
    for name in sorted(body.keys() & {name for each in models for name in each.unsupported_settings}):
        del body[name]
        unsupported[name] = "pydantic-ai's adapter does not send it"
    body.update(_thinking(allowed, models, unsupported))
    if allowed.cache is not None and all(_takes(each, allowed.cache) for each in models):
        body["cache"] = _CACHE[allowed.cache]
    elif allowed.cache is not None:
        unsupported["cache"] = f"{allowed.cache!r} cannot be requested from this provider"
    return MappedSettings(body, unsupported)


def models_behind(model: Model) -> Iterator[Model]:
    """Yield the models that do the work: the model itself, the one that it wraps, or those of a fallback."""
    inner = getattr(model, "models", None) or [getattr(model, "wrapped", None)]
    found = [each for each in inner if isinstance(each, Model)] if isinstance(inner, list) else []
    for each in found:
        yield from models_behind(each)
    if not found:
        yield model


def _takes(model: Model, cache: str) -> bool:
    """Return whether the policy can be requested. Some providers cache by themselves, without a choice."""
    if cache in ("auto", "off"):
        return cache == "auto" or not model.profile.get("supports_auto_cache")
    return cache in model.profile.get("supported_cache_retentions", ())


def _thinking(settings: ModelSettings, models: list[Model], unsupported: dict[str, str]) -> dict[str, JsonValue]:
    wanted = settings.thinking
    if wanted is None:
        return {}
    if not isinstance(wanted, bool | str):
        unsupported["thinking"] = f"{wanted} tokens: pydantic-ai takes a level of effort, not a budget"
    elif wanted and not any(each.profile.get("supports_thinking") for each in models):
        unsupported["thinking"] = "pydantic-ai knows no thinking of this model"
    else:
        return {"thinking": wanted}
    return {}
