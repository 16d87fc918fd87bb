"""Makes summaries of turns from their journals (`turnwright.store.summaries`)."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio.to_thread
from msgspec.structs import replace

from turnwright._base.words import collapse_controls
from turnwright.errors import TurnNotFoundError, UnreadableTurnError
from turnwright.store import Store
from turnwright.store.summaries import (
    MOST,
    MOST_COST,
    UNREAD,
    SummaryStore,
    ToolCalls,
    TurnNames,
    TurnSummary,
    Unsummarized,
)
from turnwright.transcript.transcript import Transcript, reading
from turnwright_states import CallStatus, Turn, TurnMachine, Usage
from turnwright_states import facts as f

from .subturns import leased_calls

#: The most characters of one text, and of all texts of a turn, that a search finds.
_TEXT: Final = 10_000
_TEXTS: Final = 200_000
#: The most calls of a tool whose times are stored.
_TIMES: Final = 1_000
#: The most seconds, about thirty years, that are stored.
_LONGEST: Final = 1e9
#: The characters of a prompt or an answer that lists show.
_SHOWN: Final = 300
#: The most characters of a secret behind a cut: half a secret is not recognized.
_EDGE: Final = 16_384


async def summarize_turns(
    store: Store, summaries: SummaryStore, hide: Callable[[str], str], *, limit: int, search: bool = True
) -> int:
    """Summarize at most `limit` turns that rest and have no current summary, and return their number.

    New turns that run get their names, and forks the word for their origin. `hide` replaces the secrets of a text or a
    name: a search must not find what pages hide. Without `search` no texts are stored but the beginnings of prompts and
    answers, and only names and ids can be searched.

    Raises `StoreError`.
    """
    turns = await summaries.unsummarized(limit=limit)
    summary_rows: list[tuple[Unsummarized, TurnSummary]] = []
    for turn in turns:
        try:
            summary = await (_unread(store, turn.id) if turn.version == UNREAD else _summary(store, turn.id, hide))
        except TurnNotFoundError:
            continue
        names = turn.names
        session = None if names.session is None else hide(names.session)
        summary = replace(summary, names=TurnNames(hide(names.id), hide(names.agent), hide(names.model), session))
        summary_rows.append((turn, summary if search else replace(summary, text="")))
    if summary_rows:
        await summaries.summarize(summary_rows)
    return len(turns)


async def _unread(store: Store, turn_id: str) -> TurnSummary:
    """Return the summary of a turn that does not rest yet, by which a search finds a fork from its origin."""
    # The journal of a turn with another name is not read.
    with suppress(UnreadableTurnError):
        for _, fact in (await store.facts(turn_id))[:1] if turn_id.startswith("fork-") else ():
            return TurnSummary(text=_origin(fact))
    return TurnSummary()


async def _summary(store: Store, turn_id: str, hide: Callable[[str], str]) -> TurnSummary:
    try:
        facts = await store.facts(turn_id)
        # A long journal takes seconds, and turns are driven meanwhile.
        return await anyio.to_thread.run_sync(summary_of, turn_id, facts, hide)
    except UnreadableTurnError as error:
        return TurnSummary(fault=error.why)


def summary_of(turn_id: str, journal: Sequence[tuple[int, f.Fact]], hide: Callable[[str], str]) -> TurnSummary:
    """Return the summary of a turn. Raises `UnreadableTurnError` if its facts do not follow from each other."""
    facts = [fact for _, fact in journal]
    with reading(turn_id):
        turn = _fold(turn_id, facts)
        answer = Transcript.following(turn, journal).text
        totals = _count(turn, facts, hide)
    return replace(totals, answer=shown_line(answer, hide), text=searched_text(_texts(facts), hide))


def totals_of(turn_id: str, journal: Sequence[tuple[int, f.Fact]], hide: Callable[[str], str]) -> TurnSummary:
    """Return the summary of a turn that may run, without its answer and the text for searches. Raises as above."""
    facts = [fact for _, fact in journal]
    with reading(turn_id):
        return _count(_fold(turn_id, facts), facts, hide)


def _fold(turn_id: str, facts: Sequence[f.Fact]) -> Turn:
    if not facts:
        raise UnreadableTurnError(turn_id, "its journal is empty")
    return TurnMachine.resume(facts).turn


def _count(turn: Turn, facts: Sequence[f.Fact], hide: Callable[[str], str]) -> TurnSummary:
    """Return the totals of a folded turn, and its prompt."""
    first = facts[0]
    copied_count = max(first.forked_at or 0, 0) if isinstance(first, f.TurnStarted) else 0
    before = TurnMachine.resume(facts[:copied_count]).turn if copied_count else None
    names, own_facts = f.tool_names(facts), facts[copied_count:]
    failures = Counter(
        names.get(fact.call, "")
        for fact in own_facts
        if isinstance(fact, f.CallSettled) and fact.status is not CallStatus.OK
    )
    return TurnSummary(
        outcome=turn.state.outcome,
        reason=turn.reason,
        steps=min(turn.steps_taken, MOST),
        tool_calls=min(turn.counters.calls, MOST),
        usage=_fit_usage(turn.usage if before is None else _subtract(turn.usage, before.usage)),
        seconds=min(max(turn.elapsed - (0.0 if before is None else before.elapsed), 0.0), _LONGEST),
        retries=sum(isinstance(fact, f.AttemptFailed | f.Concluded) and fact.retry for fact in own_facts),
        pauses=sum(isinstance(fact, f.Paused) for fact in own_facts),
        failures=dict(failures),
        tools={tool: _tool_calls(runs) for tool, runs in _runs(facts, copied_count, names).items()},
        sub_turns=sum(1 for _ in leased_calls(facts)),
        prompt=shown_line(first.prompt, hide) if isinstance(first, f.TurnStarted) else "",
    )


def _runs(
    facts: Sequence[f.Fact], copied_count: int, names: Mapping[str, str]
) -> Mapping[str, list[tuple[float, CallStatus]]]:
    """Return the times and the statuses of the calls that ran, by tool; without those of the copied facts."""
    started_at: dict[str, float] = {}
    runs: defaultdict[str, list[tuple[float, CallStatus]]] = defaultdict(list)
    for place, fact in enumerate(facts):
        match fact:
            case f.CallStarted(call=call):
                started_at.setdefault(call, fact.elapsed)
            case f.CallSettled(call=call, status=status) if call in started_at and place >= copied_count:
                runs[names.get(call, "")].append((fact.elapsed - started_at[call], status))
            case _:
                pass
    return runs


def _tool_calls(runs: Sequence[tuple[float, CallStatus]]) -> ToolCalls:
    times = [min(max(seconds, 0.0), _LONGEST) for seconds, _ in runs[:_TIMES]]
    return ToolCalls(len(runs), sum(status is not CallStatus.OK for _, status in runs), times)


def fork_word(turn_id: str) -> str:
    """Return the word by which a search finds the forks of a turn."""
    return f"forked_from:{turn_id}"


def _origin(first: f.Fact) -> str:
    """Return the word for the origin of a fork; empty for another turn."""
    return fork_word(first.forked_from) if isinstance(first, f.TurnStarted) and first.forked_from is not None else ""


def _texts(facts: Sequence[f.Fact]) -> Iterator[str]:
    """Yield the texts of a turn that a search finds, in the order of the journal."""
    if origin := _origin(facts[0]):
        yield origin
    for fact in facts:
        match fact:
            case f.TurnStarted(prompt=text) | f.MessageAdded(text=text) | f.CallSettled(result=text):
                yield text
            case f.ModelReplied(text=text, calls=calls):
                yield text
                yield from (call.name for call in calls)
            case f.Concluded(text=str(text)) | f.Synthesized(text=str(text)) | f.Answered(text=text):
                yield text
            case f.TurnEnded(error=text):
                yield text
            case _:
                pass


def searched_text(texts: Iterable[str], hide: Callable[[str], str], *, room: int = _TEXTS) -> str:
    """Return what a search finds of some texts, without secrets: the beginning of each, `room` characters in all."""
    parts: list[str] = []
    room_left = room
    for text in texts:
        if room_left <= 0:
            break
        parts.append(hide(text[: _TEXT + _EDGE])[:_TEXT])
        room_left -= len(parts[-1]) + 1
    return "\n".join(parts)[:room]


def shown_line(text: str, hide: Callable[[str], str]) -> str:
    """Return the beginning of a text without secrets, in one line, as lists show it."""
    return collapse_controls(hide(text[: 4 * _SHOWN + _EDGE])[: 4 * _SHOWN])[:_SHOWN]


def _subtract(usage: Usage, part: Usage) -> Usage:
    # The rest of a sum of floats may be below zero.
    return replace(usage, cost=max(usage.cost, part.cost)) - part


def _fit_usage(usage: Usage) -> Usage:
    """Return the usage with numbers that every database stores. Only a forged journal has larger ones."""
    most = max(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens)
    if most <= MOST and usage.cost <= MOST_COST:
        return usage
    return Usage(
        input_tokens=min(usage.input_tokens, MOST),
        output_tokens=min(usage.output_tokens, MOST),
        cached_tokens=min(usage.cached_tokens, usage.input_tokens, MOST),
        reasoning_tokens=min(usage.reasoning_tokens, usage.output_tokens, MOST),
        cost=min(usage.cost, MOST_COST),
    )
