"""What drives turns that others began, as `worker` and `serve --drive` do: from the flags to an engine that opens."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from turnwright.agents.files import read_agents
from turnwright.driver.team import agent_tools
from turnwright.engine import Engine
from turnwright.errors import ConfigError
from turnwright.journal.event_bus import Observer
from turnwright.model.providers import LOCAL, open_model
from turnwright.runtime import Runtime
from turnwright.store import Store
from turnwright.telemetry import Telemetry

from .interactive import Opening
from .mcp import with_mcp
from .models import model_named, models_for
from .options import choose_tools

if TYPE_CHECKING:
    from turnwright.config.config import Config


def driving_model(said: "Config", model: str | None) -> str:
    """The whole name of the model that turns are driven with, by the flag `--model` or what `said` configures.

    Raises `ConfigError` where nobody names one: the embedded model is for trying things out, and is never meant.
    """
    settings = said.settings
    named = model_named(model or settings.model, settings.base_url)
    if named == LOCAL.name and not (model or settings.model):
        raise ConfigError("no model: name the one that turns are driven with, by --model, and --base-url for a server")
    return named


def driving(
    store: Store,
    said: "Config",
    named: str,
    *,
    tools: str | None,
    mcp: Sequence[Path] | None,
    root: Path | None,
    agents: Path | None,
    runtime: Runtime | None = None,
    on_event: Sequence[Observer] = (),
    telemetry: Telemetry | None = None,
) -> Opening:
    """What opens an engine that drives the turns in `store`, with the model `named` and what `said` configures.

    `tools`, `mcp`, `root` and `agents` are the flags, which win over `said`. The agents of the files are offered as
    tools; a turn has the model that its own agent names, or else `named`. Raises `ConfigError` for a model, a tool or
    an agent that is not to be had.
    """
    settings, options = said.settings, said.engine_options()
    served = open_model(named, base_url=settings.base_url, timeout=settings.timeout)
    files = (agents,) if agents is not None else said.agent_files() if settings.agents else ()
    helpers = agent_tools(said.prepared(one) for one in read_agents(*files, limits=options["limits"])) if files else []
    make = partial(
        Engine,
        model=served,
        models=models_for(served, named, None, settings.base_url, settings.timeout),
        store=store,
        runtime=runtime,
        telemetry=telemetry,
        on_event=on_event,
        limits=options["limits"],
        prices=options["prices"],
        unpaired=options["unpaired"],
        show_budget_to_model=options["show_budget_to_model"],
    )
    own = choose_tools(tools or settings.tools, root or Path(settings.root))
    return with_mcp(mcp or tuple(map(Path, settings.mcp)), make, [*own, *helpers])
