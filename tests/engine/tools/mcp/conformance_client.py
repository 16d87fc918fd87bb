"""The client that the conformance suite of MCP tests: ours, as an app uses it.

A person is played by a request that follows the redirects of the authorization server, by first choices, and by empty
forms.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from pydantic import JsonValue

from turnwright import Agent, Engine, TurnResult
from turnwright.errors import ConfigError
from turnwright.message import ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools import Tool
from turnwright.tools.mcp import McpServer, mcp_login, mcp_tools
from turnwright_states.payload import thaw

#: The address of the client's metadata that the suite expects.
CLIENT_METADATA: Final = "https://conformance-test.local/client-metadata.json"
MOST_LOGINS: Final = 3
NEEDS_LOGIN: Final = "it needs a login: "
#: Values for the arguments of a tool, by type.
VALUES: Final[Mapping[object, JsonValue]] = {"number": 2, "integer": 2, "string": "x", "boolean": True}


async def play(scenario: str, url: str, settings: Mapping[str, Any]) -> None:
    """Call the server's tools, and log in as often as it wants, but not for ever.

    `settings` are the scenario's data.
    """
    oauth = oauth_settings(scenario, url, settings)
    server = McpServer.model_validate({"type": "http", "url": url, "oauth": oauth})
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(MOST_LOGINS):
            problem = await use(server, settings.get("toolCalls"), Path(folder))
            if NEEDS_LOGIN not in problem:
                return
            await mcp_login(server, show=log_in_as_a_person, logins=folder)


def oauth_settings(scenario: str, url: str, settings: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return the settings of a scenario, from its data."""
    oauth: dict[str, JsonValue] = {"clientMetadataUrl": CLIENT_METADATA} if scenario == "auth/basic-cimd" else {}
    names = {"client_id": "clientId", "client_secret": "clientSecret", "issuer": "issuer"}
    oauth |= {name: settings[key] for key, name in names.items() if key in settings}
    if scenario.startswith("auth/client-credentials"):
        oauth |= {"grant": "client_credentials", "issuer": issuer_of(url)}
    if "private_key_pem" in settings:
        oauth |= {"privateKey": settings["private_key_pem"], "algorithm": settings["signing_algorithm"]}
    return oauth


def issuer_of(url: str) -> str:
    """Return the authorization server of a server, which the data of the scenarios do not have."""
    parts = urlsplit(url)
    described = httpx.get(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}").json()
    return str(described["authorization_servers"][0])


def log_in_as_a_person(address: str) -> None:
    """Open the address in a thread: the answer comes to this process."""
    Thread(target=httpx.get, args=(address,), kwargs={"follow_redirects": True}, daemon=True).start()


async def use(server: McpServer, calls: list[dict[str, Any]] | None, folder: Path) -> str:
    """Call the tools in one turn, by default each with some arguments. Return the problems."""
    try:
        async with mcp_tools({"s": server}, approve="never", logins=folder) as tools:
            if calls is None:
                calls_to_make = [(tool.name, example(tool, tools)) for tool in tools]
            else:
                calls_to_make = [(f"s__{call['name']}", call["arguments"]) for call in calls]
            return await run_turn(tools, calls_to_make) if calls_to_make else ""
    except ConfigError as error:
        return str(error)


async def run_turn(tools: list[Tool], calls: list[tuple[str, dict[str, JsonValue]]]) -> str:
    """Make the calls in one turn, and answer each question with its first choice, or the defaults of its form."""
    model = ScriptedModel(*(asks_for(call) for call in calls), "Done.")
    async with Engine(model=model, tools=tools) as engine:
        turn: TurnResult = await engine.run(Agent(name="A", steps=len(calls) + 1), "Call each tool.")
        while turn.paused:
            answers = {interrupt.id: next(iter(interrupt.choices), "{}") for interrupt in turn.interrupts}
            turn = await engine.resume(turn.id, answers)
    parts = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    return "\n".join(part.text for part in parts if part.status != "ok")


def example(tool: Tool, tools: list[Tool]) -> dict[str, JsonValue]:
    """Return arguments that fit a tool's schema. Where a tool takes a schema, it gets that of the first other one."""
    properties: Any = tool.parameters.get("properties", {})
    given_schema = next((thaw(candidate.parameters) for candidate in tools if candidate is not tool), {})
    values: Mapping[object, JsonValue] = {**VALUES, "object": {**given_schema}}
    return {name: values.get(schema.get("type"), "x") for name, schema in properties.items()}
