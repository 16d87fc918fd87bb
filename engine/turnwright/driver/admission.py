"""Admits a new turn: checks everything that can be checked, and writes its first facts."""

import hashlib
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict, cast

import anyio
import msgspec
from pydantic import JsonValue

from turnwright._base.frozen import MOST_NESTED, deeper_than
from turnwright._base.ids import new_id
from turnwright.agent import OUTPUT_TOOL, Agent
from turnwright.agents.bounds import WARNED_STEPS, class_of, steps_above
from turnwright.context import JsonObject
from turnwright.errors import (
    ConfigError,
    SessionBusyError,
    TurnConflictError,
    TurnExistsError,
    TurnNotFoundError,
)
from turnwright.journal.inbox import writable
from turnwright.journal.message_history import EarlierJournals
from turnwright.journal.termination import supersede_session
from turnwright.journal.turn_journal import Listeners, first_fact, stamp
from turnwright.message import FilePart, Message
from turnwright.model.model_settings import ModelSettings, checked_settings
from turnwright.store import Claim, NewTurn, Status, Store, TurnRow
from turnwright.store.sessions import default_title
from turnwright.transcript.events import first_events
from turnwright.transcript.pairing import UnpairedError, check_pairing
from turnwright.transcript.refusal import without_refused
from turnwright_states import InvalidInputError, Limits, StartedInput, State, TurnMachine
from turnwright_states.facts import Fact
from turnwright_states.payload import freeze

from .dependencies import Dependencies, get_or_make, guardrails_of, hooks_of, names_of

if TYPE_CHECKING:
    from turnwright.tools.later import ExternalTool

_LOG = logging.getLogger(__name__)

# Not `.` and `..`, which clients cut out of a URL.
_ID: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,128}")
# PostgreSQL keeps no longer one in an index.
_LONGEST_SESSION: Final = 1_000
#: How often an equal start looks whether another process has written the turn, and the seconds between two looks.
_LOOKS: Final = 40
_PATIENCE: Final = 0.05


class TurnOptions(TypedDict, total=False):
    """Options of a new turn besides its agent and its prompt."""

    id: str | None
    """The turn's id: 1 to 128 of `A-Z a-z 0-9 . _ -`, but not `.` or `..`. If a turn with this id exists and was
    started with the same agent name, prompt and options, the call attaches to it instead of starting another one; with
    others it raises `TurnConflictError`. See docs/rules.md#start-once.
    """
    session: str | None
    """The conversation that the turn belongs to, 1 to 1,000 visible characters. The session's earlier turns are its
    history.
    """
    message_history: Sequence[Message | Mapping[str, object]]
    """The history of a turn without a session: messages, or mappings: `Message.to_json()`, in the chat completions
    format, or in that of Anthropic's Messages API, whose blocks may be the SDK's objects.

    Calls without results and results without calls are repaired when they are sent, or rejected
    (`Engine(unpaired=...)`).
    """
    files: Sequence[FilePart]
    """Pictures and documents, sent with the prompt."""
    continue_from: str | None
    """A turn to continue after a limit stopped it. The new turn joins its session."""
    metadata: Mapping[str, JsonValue]
    """JSON data of your app, kept with the turn."""
    model_settings: ModelSettings | None
    """Settings of this turn's model calls, over those of the agent and the engine. Sub-agents do not inherit them."""
    tools: "Sequence[ExternalTool]"
    """Tools of this turn alone, which your app or its client runs (`external_tool`). The agent may use all of them; its
    sub-agents may not. The journal keeps them, so that any process can resume the turn. See docs/rules.md#client-tools.
    """


_OPTIONS: Final = tuple(TurnOptions.__annotations__)


def admit(setup: Dependencies, agent: Agent, prompt: str, options: TurnOptions) -> StartedInput:
    """Return the input that starts the turn.

    Raises `ConfigError` for an unknown option, an agent that cannot run with these dependencies, a prompt or a history
    that every provider would reject, metadata that is nested too deep, and what `check_client_tools` refuses.
    """
    _check_names(options.keys())
    client_tools = check_client_tools(setup, agent, options.get("tools", ()))
    request_fields = _read_request(setup, prompt, options, client_tools)
    limits = limits_for(agent, setup, client_tools)
    model = setup.model_for(agent)
    setup.writer_for(agent)  # raises if there is no such model
    if limits.cost is not None:
        setup.need_costs(agent, f"agent {agent.name!r}: cost: a cost budget")
    settings = setup.settings_for(agent, model, options.get("model_settings"))
    try:
        turn_input = StartedInput(
            **request_fields,
            limits=limits,
            model=model.name,
            synthesis=setup.synthesize is not None,
            model_settings={} if settings is None else settings.to_json(),
            rules=_rules_for(agent, setup, client_tools),
            hooks=names_of(setup.hooks),
            guardrails=names_of(setup.guardrails),
            restricted=setup.authorize is not None,
        )
    except InvalidInputError as error:
        raise ConfigError(error.why) from None
    agent_record = get_or_make(setup.journals_by_agent, agent, partial(_journal_agent, agent, limits, setup))
    return msgspec.structs.replace(turn_input, agent=agent_record)


def check_client_tools(
    setup: Dependencies, agent: Agent, tools: "Sequence[ExternalTool]"
) -> "Mapping[str, ExternalTool]":
    """Return the tools of the turn alone, by name.

    Raises `ConfigError` for the name of another tool that the turn may have, and what `later.client_tools` raises.
    """
    if not tools:
        return {}
    from turnwright.tools.later import client_tools  # noqa: PLC0415 (few turns have such tools)

    by_name = client_tools(tools)
    taken_names = {*setup.tools, *([OUTPUT_TOOL] if agent.is_typed else ())}
    for name in by_name:
        if name in taken_names:
            raise ConfigError(f"tools: {name!r} is a tool of the engine: rename yours")
    return by_name


def _rules_for(agent: Agent, setup: Dependencies, client_tools: Collection[str]) -> tuple[JsonObject, ...]:
    """See `turn_rules.rules_for`."""
    if not setup.rules and not agent.rules:
        return ()
    from .turn_rules import rules_for  # noqa: PLC0415 (few agents have rules)

    return rules_for(agent, setup, client_tools)


class _Requested(TypedDict):
    """The fields of a turn's input that the caller gives."""

    prompt: str
    files: tuple[Mapping[str, JsonValue], ...]
    message_history: tuple[Mapping[str, JsonValue], ...]
    session: str | None
    continue_from: str | None
    metadata: Mapping[str, JsonValue]
    client_tools: tuple[Mapping[str, JsonValue], ...]


def _read_request(
    setup: Dependencies, prompt: str, options: TurnOptions, client_tools: "Mapping[str, ExternalTool]"
) -> _Requested:
    """Return the fields that the caller gives. Raises `ConfigError`."""
    writable(prompt, "the prompt")
    session = options.get("session")
    if isinstance(session, str) and not (session.isprintable() and 0 < len(session.strip()) <= _LONGEST_SESSION):
        raise ConfigError(f"session: 1 to {_LONGEST_SESSION:,} visible characters, not {session!r:.80}")
    history = _messages(options.get("message_history", ()), strict=setup.unpaired == "reject")
    context = options.get("metadata", {})
    if context and isinstance(context, Mapping) and deeper_than(dict(context), MOST_NESTED):
        raise ConfigError(f"metadata: nests more than {MOST_NESTED} lists and objects: give one that is flatter")
    return _Requested(
        prompt=prompt,
        files=tuple(_file(number, file) for number, file in enumerate(options.get("files", ()))),
        message_history=tuple(message.to_json() for message in history),
        session=session,
        continue_from=options.get("continue_from"),
        metadata=context,
        client_tools=tuple(tool.to_json() for tool in client_tools.values()),
    )


def id_of(options: TurnOptions) -> str:
    """Return the id of a new turn: the option `id`, or a new one. Raises `ConfigError` for an id that is none."""
    turn_id = options.get("id")
    if turn_id is None:
        return new_id()
    if not isinstance(turn_id, str) or _ID.fullmatch(turn_id) is None:
        raise ConfigError(f"id: 1 to 128 of A-Z a-z 0-9 . _ -, not {turn_id!r:.80}")
    return turn_id


def digest_request(setup: Dependencies, agent: Agent, prompt: str, options: TurnOptions) -> dict[str, str]:
    """Return a digest of each field that the caller gives, without those that are empty.

    Of the agent only the name counts, and of the settings only those of the run: a new release of the app between two
    equal starts changes nothing. Raises `ConfigError`.
    """
    _need_agent(agent)
    _check_names(options.keys())
    settings = checked_settings(options.get("model_settings"), "this turn")
    try:
        client_tools = check_client_tools(setup, agent, options.get("tools", ()))
        # Checks the fields, without the agent's.
        requested_input = StartedInput(**_read_request(setup, prompt, options, client_tools))
    except InvalidInputError as error:
        raise ConfigError(error.why) from None
    fields: dict[str, object] = {"agent": agent.name}
    fields |= {name: getattr(requested_input, name) for name in _Requested.__annotations__}
    fields["tools"] = fields.pop("client_tools")  # as the caller calls them
    fields["model_settings"] = None if settings is None else settings.to_json()
    return {name: _digest(value) for name, value in fields.items() if value is not None and value not in ((), {})}


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


async def _exists(store: Store, turn_id: str, request: Mapping[str, str]) -> bool:
    """Return whether a turn of this id was started with the same request.

    Raises `TurnConflictError`, which names the first field that differs.
    """
    try:
        facts = await store.facts(turn_id)
    except TurnNotFoundError:
        return False
    earlier = first_fact(turn_id, facts).request
    if not earlier:  # its starter chose no id
        raise TurnConflictError(turn_id, "request")
    for name in (*request, *earlier):
        if earlier.get(name) != request.get(name):
            raise TurnConflictError(turn_id, name)
    return True


def _journal_agent(agent: Agent, limits: Limits, setup: Dependencies) -> Mapping[str, JsonValue]:
    """Return the agent as the journal keeps it, frozen."""
    return freeze(agent.to_journal(deps=setup.takes_deps) | _output_schema(agent, limits, setup))


def _output_schema(agent: Agent, limits: Limits, setup: Dependencies) -> dict[str, JsonValue]:
    """Return the JSON Schema of a typed answer, as the journal keeps it.

    Raises `ConfigError` where no typed answer is possible: without a step or a tool call, the model answers in text.
    """
    output = setup.output_of(agent)
    if output is None:
        return {}
    if not limits.allowance or limits.call_limit == 0:
        raise ConfigError(
            f"agent {agent.name!r}: a typed answer needs a step and a tool call: set steps and tool_calls above 0"
        )
    if OUTPUT_TOOL in setup.tools_for(agent):
        raise ConfigError(f"agent {agent.name!r}: the tool {OUTPUT_TOOL!r} takes the typed answer: rename yours")
    return {"output_schema": cast("JsonValue", output.schema)}


class NewTurnClaim(msgspec.Struct, frozen=True):
    """A turn that was just written and claimed. Its driver need not read the journal again."""

    claim: Claim
    agent: Agent
    machine: TurnMachine
    facts: Sequence[Fact]
    #: Journals of earlier turns that admission read. Reading the history removes them from here.
    earlier: EarlierJournals = msgspec.field(default_factory=dict)


async def start_turn(  # noqa: PLR0917 (where, which, and what)
    store: Store,
    setup: Dependencies,
    turn_id: str,
    agent: Agent,
    prompt: str,
    options: TurnOptions,
    *,
    listeners: Listeners,
    driven: bool,
) -> NewTurnClaim | None:
    """Admit a turn, end the paused turn of its session, and write the new turn's first facts.

    With the option `id` the result is None if the turn exists already, started with the same request: then nothing
    else was done. See docs/rules.md#start-once.

    Raises `TurnConflictError`, what `admit`, `load_ended_turn`, `supersede_session` and `write_turn` raise, and
    `ConfigError` for a cost limit of a turn whose models are all free. A sub-agent may be free: its caller lends it a
    part of a limit.
    """
    request = {} if options.get("id") is None else digest_request(setup, agent, prompt, options)
    if request and await _exists(store, turn_id, request):
        return None
    session, continues = options.get("session"), options.get("continue_from")
    turn_input = msgspec.structs.replace(admit(setup, agent, prompt, options), request=request)
    if turn_input.limits.cost is not None and not setup.may_cost(agent):
        raise ConfigError(
            f"agent {agent.name!r}: cost: its cost limit of {turn_input.limits.cost:g} can never be reached, because"
            f" each price of model {turn_input.model!r} is 0: remove the limit (Limits(cost=None)), or the price if the"
            " model reports its cost"
        )
    if agent.template and isinstance(agent.instructions, str):
        from turnwright.agents.template import check_template  # noqa: PLC0415 (few agents are templates)

        check_template(agent.instructions, turn_input.metadata)
    earlier: EarlierJournals = {}
    if continues is not None:
        before, earlier[continues] = await load_ended_turn(store, continues)
        session = session or before.session
        turn_input = msgspec.structs.replace(turn_input, session=session)
    try:
        if session is not None:
            earlier |= await _supersede(store, session, turn_id, request, listeners)
            if turn_input.rules:
                from .turn_rules import read_past  # noqa: PLC0415 (few turns have rules)

                past = await read_past(store, session, turn_input.rules, earlier)
                turn_input = msgspec.structs.replace(turn_input, past=past)
        now = setup.now()
        return await write_turn(
            store, turn_id, agent, turn_input, created_at=now, listeners=listeners, driven=driven, earlier=earlier
        )
    except (TurnExistsError, SessionBusyError):  # perhaps an equal start was faster
        if request and await _exists(store, turn_id, request):
            return None
        raise


async def _supersede(
    store: Store, session: str, turn_id: str, request: Mapping[str, str], listeners: Listeners
) -> EarlierJournals:
    """End the paused turn of a session. An equal start may be about to do the same: then wait for its turn.

    Raises what `supersede_session` raises.
    """
    looks = _LOOKS if request else 0
    while True:
        try:
            return await supersede_session(store, session, turn_id, listeners)
        except SessionBusyError as busy:
            if not looks or not await _rests(store, busy.turn):
                raise
        looks -= 1
        await anyio.sleep(_PATIENCE)


async def _rests(store: Store, turn_id: str) -> bool:
    """Return whether a turn waits for a person or has ended. If it is claimed, somebody ends it or drives it on."""
    with suppress(TurnNotFoundError):
        status = (await store.get(turn_id)).status
        return status.state is State.PAUSED or status.outcome is not None
    return True


async def write_turn(
    store: Store,
    turn_id: str,
    agent: Agent,
    turn_input: StartedInput,
    *,
    created_at: float,
    listeners: Listeners | None,
    driven: bool = True,
    earlier: EarlierJournals | None = None,
) -> NewTurnClaim:
    """Write an admitted turn with its first facts, claim it if it is to be `driven` here, and publish its first events.

    `created_at` is in seconds since the Unix epoch. Raises `SessionBusyError` and `StoreError`, like `Store.create`.
    """
    machine, facts = TurnMachine.start(turn_input)
    stamp(facts, created_at)
    session = turn_input.session
    title = "" if session is None else default_title(turn_input.prompt)
    new = NewTurn(turn_id, session, agent.name, turn_input.model, created_at, title)
    claim = await store.create(new, facts, Status.of(machine.turn), driven=driven)
    if listeners is not None and turn_id in listeners.followed:
        for event in first_events(turn_id, facts, machine.turn):
            listeners.publish(event)
    return NewTurnClaim(claim, agent, machine, facts, earlier or {})


async def load_ended_turn(store: Store, turn_id: str) -> tuple[TurnRow, list[tuple[int, Fact]]]:
    """Return the row and the journal of an ended turn, for another one to continue.

    Raises `TurnNotFoundError`, `ConfigError` if it has not ended, and `UnreadableTurnError`.
    """
    row = await store.get(turn_id)
    if row.status.outcome is None:
        raise ConfigError(f"turn {turn_id} has not ended: resume it, or abort it, before continuing from it")
    # Its messages are needed. If they could not be read, the new turn would be written and could not run.
    return row, await store.facts(turn_id)


def limits_for(agent: Agent, setup: Dependencies, client_tools: "Mapping[str, ExternalTool] | None" = None) -> Limits:
    """Return the limits of a turn of this agent: the agent's over the engine's, tool calls as one number.

    `client_tools` are the tools of the turn alone. Without them the result is cached for each agent, so a warning about
    steps above the ceiling is logged once. Raises `ConfigError` for an invalid agent, for limits that conflict, for an
    unknown tool, and for hooks or guardrails that are none or name an unknown tool.
    """
    _need_agent(agent)
    if client_tools:
        return _limits_for(agent, setup, client_tools)
    return get_or_make(setup.limits_by_agent, agent, partial(_limits_for, agent, setup, {}))


def _need_agent(agent: object) -> None:
    if not isinstance(agent, Agent):
        raise ConfigError(f"{agent!r} is not an agent: write Agent(name=...)")


def _limits_for(agent: Agent, setup: Dependencies, client_tools: "Mapping[str, ExternalTool]") -> Limits:
    where = f"agent {agent.name!r}"
    tool_names = [*setup.tools, *client_tools]
    hooks_of(setup.hooks, "engine", tool_names)
    hooks_of(agent.hooks, where, tool_names)
    guardrails_of(agent.guardrails, where)
    tools = [*setup.tools_for(agent).values(), *client_tools.values()]
    limits = agent.limits_for(setup.limits).for_tools(class_of(tools))
    steps = limits.steps
    if steps is not None and steps > limits.ceiling and (agent.name, steps) not in WARNED_STEPS:
        _LOG.warning("%s: steps: %s", where, steps_above(steps, limits.ceiling))
    return limits


def _file(number: int, file: FilePart) -> dict[str, JsonValue]:
    if not isinstance(file, FilePart):
        raise ConfigError(
            f"files: file {number} is not a FilePart: write FilePart.read(path), or FilePart.of(content, type)"
        )
    return file.kept()


def _check_names(options: Collection[str]) -> None:
    # Python accepts any name for `**options`, and a turn without the intended session would run.
    for name in options:
        if name not in _OPTIONS:
            from turnwright_states.suggestions import find_similar_name  # noqa: PLC0415 (only after a mistake)

            near = find_similar_name(name, _OPTIONS)
            hint = f"did you mean {near!r}? The options are" if near else "use one of"
            raise ConfigError(f"{name[:40]!r} is not an option of a turn: {hint} {', '.join(_OPTIONS)}")


def _import_message(message: Mapping[str, object], names: dict[str, str]) -> list[Message]:
    """Return a message as JSON, ours or of another format, as messages. `names` has the tools of earlier calls.

    Raises `ValueError` for another format.
    """
    plain = cast("Mapping[str, JsonValue]", message)
    if isinstance(message, Mapping) and "content" not in message and "parts" in message:
        return [Message.of_json(plain)]
    if isinstance(message, Mapping) and isinstance(message.get("content"), list | tuple):
        from turnwright.model.anthropic.message_blocks import has_blocks, messages_of  # noqa: PLC0415 (few turns)

        if has_blocks(message):
            return messages_of(message, names)
    chat_message = Message.from_chat(plain)
    if not chat_message.parts and "content" not in message:
        raise ValueError("it has no content: write {'role': ..., 'content': ...}")
    return [chat_message]


def _messages(history: Sequence[Message | Mapping[str, object]], *, strict: bool) -> list[Message]:
    """Return the history as messages. Raises `ConfigError`, naming the message that providers would reject."""
    messages: list[Message] = []
    names: dict[str, str] = {}
    for number, message in enumerate(history):
        try:
            imported_messages = [message] if isinstance(message, Message) else _import_message(message, names)
            messages += [Message.of_json(imported_message.to_json()) for imported_message in imported_messages]
        except ValueError as error:
            raise ConfigError(f"message_history: message {number}: {error}") from None
    messages = without_refused(messages)
    if strict:
        try:
            check_pairing(messages)
        except UnpairedError as error:
            raise ConfigError(f"message_history: {error}: a provider would refuse it") from None
    return messages
