"""The journal: every fact as it was written, with the event that it came from and who wrote it."""

from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from turnwright.privacy.redaction import redactor, shown_fields
from turnwright.store import ClaimSpan
from turnwright_inspector.http.render import json_text
from turnwright_inspector.views.pagination import Window
from turnwright_inspector.views.turn_record import TabContext
from turnwright_states import facts as f

#: Facts a page.
_PAGE: Final = 100
#: Characters of a text that a fact is shown with: a page has many facts, and a picture is a megabyte of letters.
_LONGEST: Final = 8_000


@dataclass(frozen=True, slots=True)
class FactEntry:
    """A fact. `payload` is JSON over several lines, `rows` are those of the chart that its event took.

    `first` says whether it is the first of its event, `last` whether it is the last, after which the turn can be looked
    at. `claim_span` says who wrote from here on, where that changes. `event` names the input that the fact came from;
    it is empty where no replay found one.
    """

    seq: int
    fact: f.Fact
    summary: str
    payload: str
    event: str
    rows: tuple[str, ...]
    first: bool
    last: bool
    claim_span: ClaimSpan | None


@dataclass(frozen=True, slots=True)
class JournalView:
    """The journal of the whole turn, or of the chosen step: as many facts as a page has.

    `verdict` is what a replay of all of it says.
    """

    entries: tuple[FactEntry, ...]
    window: Window
    verdict: str
    detail: str


def view(tab_context: TabContext) -> JournalView:
    """The facts of the chosen step, or of the whole turn, up to the last one or the one that was asked for."""
    turn, step = tab_context.turn, tab_context.step
    begins = {span.first: span for span in turn.claim_spans}
    facts = turn.facts if step is None else turn.facts[step.first - 1 : step.last]
    window = Window.of(len(facts), _PAGE, tab_context.until)
    shown_facts = facts[window.part]
    low, high = shown_facts[0][0], shown_facts[-1][0]
    near = (group for group in turn.replayed.groups if group.first <= high and low <= group.last)
    events = {seq: group for group in near for seq in range(group.first, group.last + 1)}
    entries, tools = [], f.tool_names(fact for _, fact in facts)
    for seq, fact in shown_facts:
        group = events.get(seq)
        entries.append(
            FactEntry(
                seq=seq,
                fact=fact,
                summary=fact.summary(tools),
                payload=json_text(_shorten(shown_fields(fact, redactor()))),
                event="" if group is None else type(group.event).__name__,
                rows=() if group is None or seq != group.first else tuple(row.name for row in group.rows),
                first=group is None or seq == group.first,
                last=group is not None and seq == group.last,
                claim_span=begins.get(seq),
            )
        )
    check = turn.replayed.check
    return JournalView(tuple(entries), window, str(check.verdict), check.detail)


def _shorten(value: JsonValue) -> JsonValue:
    """Return the value with very long texts cut, and marked as cut. The downloaded file has the full texts."""
    match value:
        case str() if len(value) > _LONGEST:
            return f"{value[:_LONGEST]}… ({len(value) - _LONGEST:,} more characters)"
        case list():
            return [_shorten(item) for item in value]
        case dict():
            return {name: _shorten(item) for name, item in value.items()}
        case _:
            return value
