"""A question to a person on a page: a sentence, and everything that is asked for."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from turnwright._base.schema_faults import is_number
from turnwright._base.words import cut_after
from turnwright.errors import InvalidAnswerError
from turnwright.journal.questions import ALWAYS_WORDS, words
from turnwright.privacy.invisible import exact
from turnwright.privacy.redaction import Redactor, redactor
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import InterruptKind
from turnwright_states.payload import thaw

#: Words of a sentence that name an argument, and the names of others that mean one of them.
_LINKS: Final = {
    **{name: name for name in ("to", "from", "for", "at", "on", "in", "into", "by", "with")},
    **dict.fromkeys(("recipient", "payee", "beneficiary", "destination"), "to"),
    **dict.fromkeys(("sender", "payer", "source"), "from"),
}
#: The names of amounts of money, and of their currency.
_AMOUNTS: Final = frozenset({"amount", "price", "sum", "total", "value"})
_CURRENCY: Final = "currency"
_CODE: Final = re.compile(r"[A-Z]{3}")
#: A text that needs no quotes, and the most characters of one and of a sentence.
_PLAIN: Final = re.compile(r"\w[\w .&/@+-]{0,58}\w|\w")
_LONGEST: Final = 60
_SENTENCE: Final = 240


@dataclass(frozen=True, slots=True)
class QuestionText:
    """The text of a question, whether a part that looks like a secret is hidden, and the arguments as JSON to edit.

    `sentence` says what is asked for in one line, of an approval with the arguments as far as there is room. Arguments
    with hidden parts are not offered.
    """

    words: str
    sentence: str
    hides: bool
    arguments: str = ""
    #: What an approval with `always` covers.
    always_words: str = ALWAYS_WORDS


def question_text(hider: Redactor, interrupt: Interrupt, agent: str = "") -> QuestionText:
    """Return a question in the words of the terminal (`turnwright.journal.questions`), without secrets.

    `agent` is the name of the agent that asks.
    """
    whole, shown_question = words(interrupt, choices=False), interrupt
    if interrupt.arguments is not None:
        shown_question = replace(shown_question, arguments=hider.hide_fields(interrupt.arguments))
    hidden_text = hider.hide(words(shown_question, choices=False))
    hides = hidden_text != whole
    arguments_text = "" if hides or not interrupt.arguments else json.dumps(thaw(interrupt.arguments), indent=2)
    return QuestionText(hidden_text, _sentence(shown_question, agent), hides=hides, arguments=arguments_text)


def need_shown(name: str, interrupt: Interrupt) -> None:
    """Raise `InvalidAnswerError` for an approval that no page shows whole: nobody can have read all of it here."""
    if question_text(redactor(), interrupt).hides:
        why = (
            "parts of it are hidden on this page: approve it where all of it is shown, or write all arguments yourself"
        )
        raise InvalidAnswerError(name, why, [name])


def _sentence(question: Interrupt, agent: str) -> str:
    """`Clerk wants to run wire_money: 1,200.50 EUR to ACME GmbH`; empty for a question that is a sentence itself."""
    subject = exact(agent) or "The agent"
    if question.kind is InterruptKind.GRANT and question.grant:
        return cut_after(f"{subject} wants to be allowed: {exact(question.grant)}", _SENTENCE)
    if question.kind is not InterruptKind.APPROVAL:
        return ""
    phrases = ""
    for link, value in _phrases(thaw(question.arguments or {})):
        # A phrase that begins with a word of a sentence follows without a comma.
        before = "" if not phrases else " " if link in _LINKS.values() else ", "
        phrases += f"{before}{link} {value}" if link else f"{before}{value}"
    return cut_after(f"{subject} wants to run {exact(question.tool)}{f': {phrases}' if phrases else ''}", _SENTENCE)


def _phrases(arguments: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Yield the name of each argument, as a sentence has it, and its value."""
    currency = arguments.get(_CURRENCY)
    code = currency if isinstance(currency, str) and _CODE.fullmatch(currency) else ""
    amount_names = [name for name, value in arguments.items() if name in _AMOUNTS and is_number(value)] if code else []
    for name, value in arguments.items():
        if name in amount_names[:1]:
            yield "", f"{value:,.2f} {code}"
        elif name != _CURRENCY or not amount_names:
            yield _LINKS.get(name, "" if len(arguments) == 1 else exact(name)), _value(value)


def _value(value: JsonValue) -> str:
    if isinstance(value, str):
        text = exact(value)
        return text if _PLAIN.fullmatch(text) else f'"{cut_after(text, _LONGEST)}"'
    if is_number(value):
        return f"{value:,}"
    return cut_after(exact(json.dumps(value, ensure_ascii=False)), _LONGEST)
