"""`turnwright config`: every setting, its value and its source."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit, urlunsplit

import typer

from turnwright.agents.bounds import Bound, bounds_of
from turnwright.model.prices import Price, price_data
from turnwright_states import ToolCallLimits

from .options import ConfigOption, JsonObjectOption
from .process import echo, echo_json
from .screen import print_columns
from .stores import without_password

if TYPE_CHECKING:
    from turnwright.config.config import SettingOrigin
    from turnwright.config.settings import Setting


def config(
    *,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Show the settings for turns of this agent.")
    ] = None,
    file: ConfigOption = None,
    as_json: JsonObjectOption = False,
    settings: Annotated[bool, typer.Option("--settings", help="List all settings and their meanings.")] = False,
) -> None:
    """Print every setting, its value and its source.

    Precedence: flag or code, agent file, environment (TURNWRIGHT_...), turnwright.toml, preset, default.
    """
    if settings:
        echo(settings_list())
        return
    from turnwright.config.config import load_config  # noqa: PLC0415 (loads the settings)

    config_found = load_config(file=file)
    origins, cap = config_found.origins, None
    if agent is not None:
        text, place = config_found.written(agent)
        origins = config_found.origins_for(text, str(place))
        cap = bounds_of(config_found.prepared(text).limits_for(config_found.limits()))[0]
    prices = price_data()
    if as_json:
        record = _record(config_found.file, agent, origins, cap)
        echo_json(record | {"published_prices": None if prices is None else asdict(prices)})
        return
    echo(f"Configuration file: {'none' if config_found.file is None else config_found.file}\n")
    print_columns(
        ("KEY", "VALUE", "SOURCE"), [(key, _text(key, origin), str(origin)) for key, origin in origins.items()]
    )
    if prices is not None:
        echo(f"\nOther prices: {prices}.")
    if agent is not None and cap is not None:
        flag = [] if file is None else ["--config", str(file)]
        command = shlex.join(["turnwright", "explain", "--agent", agent, *flag])
        echo(f"\nA turn of agent {agent!r} takes at most {cap.formula} steps. `{command}` prints all limits.")


def settings_list() -> str:
    from turnwright.config.settings import SETTINGS  # noqa: PLC0415 (only needed here)

    return "\n".join(
        f"- `{setting.key}` ({setting.kind}; {_default(setting)}): {setting.means}" for setting in SETTINGS.values()
    )


def _default(setting: "Setting") -> str:
    if setting.default is None:
        return '`"unlimited"`' if setting.may_be_off and not setting.key.endswith("steps") else "unset"
    if isinstance(setting.default, ToolCallLimits):
        return f"`{json.dumps(setting.default.model_dump())}`"
    return f"`{json.dumps(setting.default)}`" if setting.default not in ((), {}) else "none"


def _record(
    file: Path | None, agent: str | None, origins: "Mapping[str, SettingOrigin]", cap: Bound | None
) -> dict[str, object]:
    return {
        "file": None if file is None else str(file),
        "agent": agent,
        "cap": None if cap is None else cap.value,
        "settings": [
            {"key": key, "value": _value(key, origin), "source": origin.source, "place": origin.place}
            for key, origin in origins.items()
        ],
    }


def _value(key: str, origin: "SettingOrigin") -> object:
    """Return the value as JSON, without passwords and keys."""
    match key, origin.value:
        case "store", str() as address:
            return without_password(address)
        case "base_url", str() as address:
            return _without_key(address)
        case _, Price() as price:
            return {name: amount for name, amount in asdict(price).items() if amount is not None}
        case _, ToolCallLimits() as by_class:
            return by_class.model_dump()
        case _, value:
            return value


def _text(key: str, origin: "SettingOrigin") -> str:
    match _value(key, origin):
        case None if key.startswith("limits.") and not (key == "limits.steps" and origin.source == "default"):
            return "unlimited"
        case None:
            return "unset"
        case str() as text:
            return text
        case tuple() as items:
            return ", ".join(map(str, items)) if items else "none"
        case value:
            return json.dumps(value)


def _without_key(address: str) -> str:
    """Return the address without user, password and query, any of which may be a key."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "***"
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"***@{host}" if user and at else host, query="***" if parts.query else ""))
