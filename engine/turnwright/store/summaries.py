"""Summaries of turns: what lists, totals and searches read, so that they replay no journal.

A store may keep one summary for each turn (`SummaryStore`). It is derived data: readers write it, from the journal,
when a turn pauses or has ended. So drivers pay nothing for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from turnwright_states import EndReason, Outcome, Usage

from .protocol import TurnRow

#: Larger counts are stored as this one.
MOST: Final = 2**53 - 1
#: Turns that have not ended, beside their outcomes in a filter.
PAUSED, UNFINISHED = "paused", "unfinished"
#: A larger cost is stored as this one.
MOST_COST: Final = 1e9
#: The most words of a search, and the most characters of a part of a name. The rest is not compared.
MOST_WORDS: Final = 50
MOST_PART: Final = 1_000
#: The version of a summary that has only names.
UNREAD: Final = -1


class TurnNames(Struct, frozen=True, gc=False):
    """The id of a turn, and the names of its agent, model and session."""

    id: str = ""
    agent: str = ""
    model: str = ""
    session: str | None = None


class ToolCalls(Struct, frozen=True, gc=False):
    """The calls of a tool that ran: how many, how many of them failed, and the times of some in seconds of driving."""

    calls: int
    failed: int
    seconds: Sequence[float]


class TurnSummary(Struct, frozen=True, gc=False):
    """The totals of a turn that is paused or has ended.

    Usage, `seconds` of driving, `retries` and `pauses` are the turn's own: the part that a fork copied counts for its
    origin. `failures` counts the calls of each tool whose status is not `ok`, `sub_turns` those that may have turns of
    their own. `tools` has the calls that ran.

    `prompt` and `answer` are beginnings of texts, `text` is what a search finds, `names` what filters compare. They
    have no secrets.

    `fault` says why the journal cannot be read. Then the rest is empty, as it is for a turn that does not rest yet.
    """

    outcome: Outcome | None = None
    reason: EndReason | None = None
    steps: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0
    retries: int = 0
    pauses: int = 0
    failures: Mapping[str, int] = {}
    tools: Mapping[str, ToolCalls] = {}
    sub_turns: int = 0
    prompt: str = ""
    answer: str = ""
    text: str = ""
    fault: str = ""
    names: TurnNames = TurnNames()


@dataclass(frozen=True, slots=True)
class Unsummarized:
    """A turn whose summary is missing or old. `version` grows with the journal; `ended`: there will be no more.

    `version` is `UNREAD` for a new turn that does not rest yet: only its names are to be written.
    """

    id: str
    version: int
    ended: bool
    names: TurnNames


class Order(StrEnum):
    """A column by which lists of turns are sorted, the largest value first."""

    NEWEST = "newest"
    STEPS = "steps"
    CALLS = "calls"
    SECONDS = "seconds"
    TOKENS = "tokens"
    COST = "cost"


class Grouping(StrEnum):
    """By what the turns of `SummaryStore.agents` are added up."""

    BOTH = "both"
    AGENT = "agent"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class TurnFilter:
    """Turns of a list. An empty field matches everything.

    They are not those of sub-agents, unless `family` is a turn: then they are the turns below it, at any depth.

    `text` is a part of an id, an agent, a model or a session, or words of prompts, answers, tool names and results: the
    first `MOST_WORDS`. `agent` and `model` are parts of names, `session` is a whole name. Names are compared as
    summaries have them: without secrets, ids and sessions up to 800 bytes, agents and models up to 200. Letters of the
    Latin alphabet match in either case. `outcome` is the outcome of an ending, or `paused`, or `unfinished`: neither
    ended nor paused. `tag` is the whole name of one of its tags. `reason` is that of an ending. `since` and `until` are
    times of creation, in seconds since the Unix epoch.
    """

    text: str = ""
    agent: str = ""
    model: str = ""
    session: str = ""
    tag: str = ""
    outcome: str = ""
    reason: str = ""
    since: float | None = None
    until: float | None = None
    family: str = ""


@dataclass(frozen=True, slots=True)
class SummarizedTurn:
    """A turn of a list. `prompt` and `answer` are empty until it is summarized, and usage, time and counts are 0."""

    row: TurnRow
    summarized: bool = False
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    prompt: str = ""
    answer: str = ""
    fault: str = ""
    sub_turns: int = 0
    retries: int = 0
    pauses: int = 0


@dataclass(frozen=True, slots=True)
class TurnTotals:
    """The sums over all turns of a list. `outcomes` counts the ended ones."""

    turns: int
    outcomes: Mapping[Outcome, int]
    steps: int
    tool_calls: int
    tokens: int
    cost: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The value that half of the turns do not exceed, and the one that nine of ten do not exceed."""

    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class AgentTotals:
    """The ended turns of one agent with one model. `reasons` counts their endings, the most frequent first.

    Those of an agent with all of its models, or of a model with all of its agents, have an empty name in the other
    place; `others` counts the names that are left out. `failures` counts the calls of tools that failed, the most
    frequent first.
    """

    agent: str
    model: str
    turns: int
    outcomes: Mapping[Outcome, int]
    reasons: Sequence[tuple[EndReason, int]]
    steps: Quantiles
    tokens: Quantiles
    cost: Quantiles
    seconds: Quantiles
    total_tokens: int
    total_cost: float
    failures: Sequence[tuple[str, int]]
    others: int = 1


@dataclass(frozen=True, slots=True)
class Spending:
    """The ended turns of one row of agents that were created in one span of time, which `began` begins."""

    began: float
    agent: str
    model: str
    turns: int
    tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class AgentStatistics:
    """The agents and models of turns, those with the most turns first, and their usage over time, the oldest first.

    A span of time has `width` seconds, so many that there are few spans, and begins at a multiple of them. A turn with
    an impossible time of creation is in no span.
    """

    agents: Sequence[AgentTotals]
    spending: Sequence[Spending]
    width: float


@runtime_checkable
class SummaryStore(Protocol):
    """The optional ability of a store to keep summaries. Every method raises `StoreError`, as those of `Store` do.

    A store without it is read through `turnwright.store.memory_summaries.summaries_of`.
    """

    async def unsummarized(self, *, limit: int) -> list[Unsummarized]:
        """Return turns whose summaries are missing, or that rest, paused or ended, and whose summaries are old.

        The newest are first.
        """
        ...

    async def summarize(self, summaries: Sequence[tuple[Unsummarized, TurnSummary]]) -> None:
        """Write summaries in one transaction. A turn that was deleted meanwhile is skipped."""
        ...

    async def find(
        self,
        turn_filter: TurnFilter,
        *,
        order: Order = Order.NEWEST,
        ascending: bool = False,
        limit: int,
        after: int | None = None,
        texts: bool = True,
    ) -> list[SummarizedTurn]:
        """Return the turns that match, at most `limit`. `after` is the number of the last turn of the page before.

        If turns are not sorted by creation and that one was deleted, there are none behind it. Without `texts` prompts
        and answers are empty, which is faster for many turns.
        """
        ...

    async def totals(self, turn_filter: TurnFilter) -> TurnTotals:
        """Return the sums over all turns that match."""
        ...

    async def agents(self, turn_filter: TurnFilter, *, by: Grouping = Grouping.BOTH) -> AgentStatistics:
        """Return the ended turns that match, by agent and model, or by one of them."""
        ...

    async def tools(self, turn_filter: TurnFilter, *, limit: int) -> Mapping[str, ToolCalls]:
        """Return the calls of each tool in the newest `limit` turns that match, and in the turns of their sub-agents.

        Turns that do not rest have none yet.
        """
        ...
