"""The pages of the API: which room is on which, and every public name of it."""

import ast
from pathlib import Path
from typing import Final, NamedTuple

from turnwright.cli.config import settings_list

ROOT: Final = Path(__file__).parent.parent
NOTE: Final = "<!-- Made by `make reference` from the lists of public names: the texts are the docstrings. -->"


class Page(NamedTuple):
    """A page of the reference: its introduction and its modules."""

    title: str
    intro: str
    rooms: tuple[str, ...]


#: In the order of the navigation.
PAGES: Final = {
    "turnwright": Page(
        "turnwright",
        "The main names: agents, the engine, tools, results, answers and errors.",
        ("turnwright",),
    ),
    "events": Page(
        "turnwright.transcript.events",
        "The events of a turn, from `Engine.stream` and `Engine.events`.",
        ("turnwright.transcript.events",),
    ),
    "message": Page("turnwright.message", "Messages of a transcript, and their parts.", ("turnwright.message",)),
    "model": Page("turnwright.model", "Models: the protocol, and the included ones.", ("turnwright.model",)),
    "tools": Page(
        "turnwright.tools", "Tools, their contexts, and the exceptions that they may raise.", ("turnwright.tools",)
    ),
    "mcp": Page(
        "turnwright.tools.mcp", "Tools of MCP servers: configuration, policy, names.", ("turnwright.tools.mcp",)
    ),
    "store": Page("turnwright.store", "Stores of journals.", ("turnwright.store", "turnwright.store.postgres")),
    "runtime": Page(
        "turnwright.runtime", "Runtimes, which decide the process that drives a turn.", ("turnwright.runtime",)
    ),
    "config": Page(
        "turnwright.config",
        "The configuration as a value, with the source of each setting.",
        ("turnwright.config",),
    ),
    "inspector": Page(
        "turnwright_inspector",
        "The pages of `turnwright serve`, for a server of your own.",
        ("turnwright_inspector",),
    ),
    "otel": Page("turnwright.otel", "Spans and metrics of turns, by OpenTelemetry.", ("turnwright.otel",)),
    "web": Page("turnwright.web", "Links for people and callbacks for services, as an app.", ("turnwright.web",)),
    "logs": Page("turnwright.logs", "The fields of log records about a turn, and a formatter.", ("turnwright.logs",)),
    "ag-ui": Page(
        "turnwright_protocols.ag_ui", "A turn as a run of the AG-UI protocol.", ("turnwright_protocols.ag_ui",)
    ),
    "ui": Page("turnwright_protocols.ui", "Turns as a chat of the AI SDK.", ("turnwright_protocols.ui",)),
    "responses": Page(
        "turnwright_protocols.responses", "Turns as responses of the OpenAI SDK.", ("turnwright_protocols.responses",)
    ),
    "a2a": Page("turnwright_protocols.a2a", "Turns as tasks of A2A.", ("turnwright_protocols.a2a",)),
    "mcp-server": Page("turnwright_protocols.mcp", "Agents as tools of an MCP server.", ("turnwright_protocols.mcp",)),
    "acp": Page("turnwright_protocols.acp", "Turns as prompts of an editor.", ("turnwright_protocols.acp",)),
    "guards": Page(
        "turnwright_guards",
        "The bounds of a turn in a loop around a client, or in a framework.",
        (
            "turnwright_guards",
            "turnwright_guards.langchain",
            "turnwright_guards.openai_agents",
            "turnwright_guards.pydantic_ai",
        ),
    ),
    "fork": Page(
        "turnwright.journal.fork",
        "Forks: copies of the beginning of a turn that continue independently.",
        ("turnwright.journal.fork",),
    ),
    "proof": Page(
        "turnwright_proof",
        "The certificate of an agent: every bound of its turns, and who set each.",
        ("turnwright_proof",),
    ),
    "draw": Page(
        "turnwright_proof.draw", "Drawings of the chart, extracted from the chart alone.", ("turnwright_proof.draw",)
    ),
    "testing": Page(
        "turnwright_testing",
        "Tools for tests: scenarios, strategies, faults, suites, a pytest plugin.",
        (
            "turnwright_testing",
            "turnwright_testing.strategies",
            "turnwright_testing.desk",
            "turnwright_testing.fuzz",
            "turnwright_testing.simulation",
            "turnwright_testing.faults",
            "turnwright_testing.store_suite",
            "turnwright_testing.linearizability",
            "turnwright_testing.model_suite",
            "turnwright_testing.runtime_suite",
            "turnwright_testing.plugin",
        ),
    ),
    "states": Page(
        "turnwright_states",
        "The pure machine: events in, facts and the next action out, and the facts of the journal.",
        ("turnwright_states", "turnwright_states.fact", "turnwright_states.facts", "turnwright_states.fact_parser"),
    ),
    "rules": Page(
        "turnwright.rules",
        "Rules over the history of calls: their forms, their files, and the history that judges a call.",
        ("turnwright.rules", "turnwright_states.rules"),
    ),
    "replay": Page(
        "turnwright_states.replay",
        "Whether each fact of a journal follows from the ones before.",
        ("turnwright_states.replay",),
    ),
    "traces": Page(
        "turnwright_audit.traces",
        "Traces of turns, ours and other runtimes', and their checker.",
        ("turnwright_audit.traces",),
    ),
    "verify": Page(
        "turnwright_proof.verify",
        "The lint of the chart, and the walk over everything that a turn can reach.",
        ("turnwright_proof.verify",),
    ),
}


def pages() -> dict[str, str]:
    """The text of each page, by its path below docs/."""
    texts = {f"api/{name}.md": _text(page) for name, page in PAGES.items()}
    texts["api/config.md"] += f"\n## All settings\n\n{settings_list()}\n"
    return texts


def _text(page: Page) -> str:
    parts = [f"# {page.title}", page.intro, NOTE]
    alone = len(page.rooms) == 1
    if alone:
        parts.append("## Public names")
    for room in page.rooms:
        names = public_names(room)
        # Where there is but one room, the page's title is its name.
        options = ["heading_level: 3"] if alone else ["show_root_heading: true", "show_root_toc_entry: true"]
        hidden = {name: place for name in names if (place := hidden_place(room, name))}
        members = "".join(f"        - {name}\n" for name in names if name not in hidden)
        lines = "".join(f"      {option}\n" for option in options)
        parts.append(f"::: {room}\n    options:\n{lines}      members:\n{members}".rstrip())
        hidden_options = [
            "heading_level: 3",
            "show_root_heading: true",
            "show_root_toc_entry: true",
            "show_root_full_path: false",
        ]
        parts += ["\n      ".join([f"::: {place}\n    options:", *hidden_options]) for place in hidden.values()]
    return "\n\n".join(parts) + "\n"


def source(room: str) -> Path:
    """The file of a room."""
    package = room.partition(".")[0]
    folder = {"turnwright": "engine", "turnwright_states": "states"}.get(package)
    home = ROOT / folder if folder else ROOT / "packages" / package.removeprefix("turnwright_")
    base = home.joinpath(*room.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def public_names(room: str) -> list[str]:
    """Return the exports of a room: its `__all__`, or else its functions and classes without an underscore.

    Read without importing the room, which may need what is not installed. Modules among the names are left out: they
    have pages of their own.
    """
    tree = ast.parse(source(room).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]:
            names: list[str] = ast.literal_eval(node.value)
            return [name for name in names if _imported(room, name) != (room, name)]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def hidden_place(room: str, name: str) -> str | None:
    """Return the module that defines a name, even if a module has that name too, like `turnwright.tools.tool`."""
    hidden = False
    while (origin := _imported(room, name)) is not None:
        hidden = hidden or source(f"{room}.{name}").is_file()
        room, name = origin
    return f"{room}.{name}" if hidden else None


def _imported(room: str, name: str) -> tuple[str, str] | None:
    """Return the module and the name that a module imports a name from; None if it is defined here."""
    file = source(room)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            up = node.level - (file.name == "__init__.py")
            base = room.split(".")[: len(room.split(".")) - up] if node.level else []
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return ".".join([*base, *([node.module] if node.module else [])]), alias.name
    return None
