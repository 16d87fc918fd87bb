"""The form that forks a turn with changes: its fields as a page shows them, and the changes that were typed."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from turnwright._base.frozen import unique_keys
from turnwright.agent import needs_of
from turnwright.errors import ConfigError
from turnwright.journal.fork_changes import ForkChanges
from turnwright.privacy.redaction import redactor
from turnwright_inspector.http.render import json_text, visible
from turnwright_states import CallStatus
from turnwright_states.payload import thaw

from .cli_commands import asked_at, fork_place
from .turn_record import TurnRecord

#: The limits that can be changed, with their words and units.
LIMITS: Final = {
    "steps": "Steps",
    "tool_calls": "Tool calls",
    "tokens": "Tokens",
    "cost": "Cost",
    "seconds": "Active time, in seconds",
}
#: The most characters of a text to edit, and how many results there are: the last ones.
_LONGEST: Final = 20_000
_MOST_RESULTS: Final = 50
_RESULT: Final = "result."
_LIMIT: Final = "limit."
#: A number with separators.
_SEPARATED: Final = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its `value` as shown, and what was `typed` for another try. `hides`: secrets in it are hidden."""

    name: str
    label: str
    value: str
    typed: str
    hides: bool = False


@dataclass(frozen=True, slots=True)
class Beginning:
    """A place from which a fork can begin, in words."""

    at: int
    words: str


@dataclass(frozen=True, slots=True)
class EditForm:
    """The form. `texts` are edited in areas, `lines` in a line; `results` are those before the place `at`.

    `at` is None for a turn that cannot be forked. `left_out` counts earlier results that have no field.
    """

    at: int | None
    beginnings: tuple[Beginning, ...]
    texts: tuple[Field, ...]
    lines: tuple[Field, ...]
    limits: tuple[Field, ...]
    results: tuple[Field, ...]
    left_out: int

    @property
    def fields(self) -> Iterator[Field]:
        """All fields."""
        yield from (*self.texts, *self.lines, *self.limits, *self.results)

    @property
    def changed(self) -> bool:
        """Whether something was typed."""
        return any(field.typed != field.value for field in self.fields)


def edit_form(turn: TurnRecord, at: int | None, step: str | None, values: Mapping[str, str]) -> EditForm:
    """Return the form of a fork after the fact `at`, or before the model call of a step, or from the beginning."""
    beginnings = tuple(_beginnings(turn))
    chosen_step = turn.step(step)
    if at is None and chosen_step is not None:
        at = asked_at(chosen_step)
    place = None if not beginnings else beginnings[0].at if at is None else fork_place(turn, at)
    if place is not None and place not in {entry.at for entry in beginnings}:
        beginnings = (*beginnings, Beginning(place, f"After fact {place}"))
    results = [] if place is None else list(_results(turn, place))
    recent = results[-_MOST_RESULTS:]
    return EditForm(
        at=place,
        beginnings=beginnings,
        texts=tuple(_field(*entry, values) for entry in _texts(turn) if len(entry[2]) <= _LONGEST),
        lines=(_field("model", "Model", turn.started.model, values),),
        limits=tuple(_field(f"{_LIMIT}{name}", words, _limit(turn, name), values) for name, words in LIMITS.items()),
        results=tuple(_field(*entry, values) for entry in reversed(recent) if len(entry[2]) <= _LONGEST),
        left_out=len(results) - sum(len(entry[2]) <= _LONGEST for entry in recent),
    )


def changes_in(form: EditForm) -> ForkChanges:
    """Return the changes that were typed. Raises `ConfigError` for a value that is not JSON."""
    new_values = {field.name: field.typed for field in form.fields if field.typed != field.value}
    changes: ForkChanges = {}
    if "prompt" in new_values:
        changes["prompt"] = new_values["prompt"]
    if "instructions" in new_values:
        changes["instructions"] = new_values["instructions"]
    if "model" in new_values:
        if not new_values["model"].strip():
            raise ConfigError("Model: it is blank: name one")
        changes["model"] = new_values["model"]
    if "model_settings" in new_values:
        settings = _json("Model settings", new_values["model_settings"].strip() or "{}")
        if not isinstance(settings, dict):
            raise ConfigError('Model settings: must be a JSON object, such as {"temperature": 0}')
        changes["model_settings"] = settings
    limits = {name: new_values[f"{_LIMIT}{name}"].strip() for name in LIMITS if f"{_LIMIT}{name}" in new_values}
    if limits:
        changes["limits"] = {name: _amount(LIMITS[name], text) for name, text in limits.items()}
    results = {name.removeprefix(_RESULT): text for name, text in new_values.items() if name.startswith(_RESULT)}
    if results:
        changes["results"] = results
    return changes


def _amount(label: str, text: str) -> JsonValue:
    """Return a limit; None for no text. Separators, as pages write them, are read."""
    if not text:
        return None
    try:
        value: JsonValue = json.loads(text.replace(",", "") if _SEPARATED.fullmatch(text) else text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{label}: write a number, or nothing for no limit, not {text[:40]!r}") from None
    return value


def _json(label: str, text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text, object_pairs_hook=unique_keys)
    except ValueError as error:
        raise ConfigError(f"{label}: this is not JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{label}: it is nested too deeply") from None
    return value


def _beginnings(turn: TurnRecord) -> Iterator[Beginning]:
    last = None
    for step in turn.steps:
        place = fork_place(turn, asked_at(step))
        if place is not None and place != last:
            yield Beginning(place, f"Before the model call of {step.title.lower()}")
        last = place


def _texts(turn: TurnRecord) -> Iterator[tuple[str, str, str]]:
    turn_start = turn.started
    yield "prompt", "Prompt", turn_start.prompt
    if "instructions" not in needs_of(turn_start.agent):
        yield "instructions", "Instructions", str(turn_start.agent.get("instructions") or "")
    settings = redactor().hide_fields(thaw(turn_start.model_settings))
    yield "model_settings", "Model settings, as JSON", json_text(settings)


def _limit(turn: TurnRecord, name: str) -> str:
    value = getattr(turn.started.limits, name)
    return "" if value is None else json.dumps(value)


def _results(turn: TurnRecord, at: int) -> Iterator[tuple[str, str, str]]:
    """Yield the results that tools gave up to a place: the name of the field, the call, the text."""
    for step in turn.steps:
        for call in step.calls:
            fact = call.result_fact
            if fact is None or call.settled_at > at or fact.status not in (CallStatus.OK, CallStatus.ERROR):
                continue
            arguments = json.dumps(redactor().hide_fields(thaw(call.made.arguments or {})), ensure_ascii=False)
            yield f"{_RESULT}{fact.call}", f"{step.title}: {call.made.name}({arguments})", fact.result


def _field(name: str, label: str, text: str, values: Mapping[str, str]) -> Field:
    # A page shows no secret, and line ends of forms are all alike.
    hidden_text = redactor().hide(text)
    text_shown = visible(hidden_text).replace("\r\n", "\n").replace("\r", "\n")
    return Field(name, label, text_shown, values.get(name, text_shown), hides=hidden_text != text)
