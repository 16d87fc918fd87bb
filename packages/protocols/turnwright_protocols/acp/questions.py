"""Ask the person in the editor: permissions for approvals, forms for questions."""

from collections.abc import Sequence
from typing import Final

from acp import schema
from acp.interfaces import Client

from turnwright.journal.answers import Answer, make_default_answer
from turnwright.journal.questions import ALWAYS_WORDS, words
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols.items import asking_call, clean
from turnwright_states import InterruptKind

from .updates import fitting

#: The options of each kind: the answer, its name, and its kind in ACP.
_OPTIONS: Final[dict[InterruptKind, Sequence[tuple[str, str, str]]]] = {
    InterruptKind.APPROVAL: (("yes", "Allow", "allow_once"), ("no", "Reject", "reject_once")),
    InterruptKind.GRANT: (("yes", "Allow", "allow_once"), ("no", "Reject", "reject_once")),
    InterruptKind.UNKNOWN_OUTCOME: (
        ("rerun", "Run it again", "allow_once"),
        ("unknown", "Do not run it", "reject_once"),
    ),
    InterruptKind.DOOM_LOOP: (
        ("go_on", "Continue", "allow_once"),
        ("always", "Always continue", "allow_always"),
        ("stop", "Stop", "reject_once"),
    ),
}
_CANCELED: Final = "nobody answered"


def _options_of(interrupt: Interrupt) -> list[tuple[str, str, str]]:
    options = [*_OPTIONS[interrupt.kind]]
    if interrupt.may_cover_equal_calls:
        options.insert(1, ("always", ALWAYS_WORDS, "allow_always"))
    return options


async def ask_permission(
    client: Client,
    session: str,
    turn: str,
    interrupt: Interrupt,
    diffs: Sequence[schema.FileEditToolCallContent] = (),
) -> str | Answer:
    """Ask for a permission, and return the answer. A canceled question is rejected."""
    options = [
        schema.PermissionOption.model_validate({"optionId": option, "name": name, "kind": kind})
        for option, name, kind in _options_of(interrupt)
    ]
    call = schema.ToolCallUpdate(
        tool_call_id=f"{turn}/{asking_call(interrupt) or interrupt.id}",
        title=clean(words(interrupt, choices=False)),
        status="pending",
        content=[*diffs] or None,
        raw_input=None if interrupt.arguments is None or diffs else fitting({**interrupt.arguments}),
    )
    response = await client.request_permission(session, call, options)
    option_id = response.outcome.option_id if isinstance(response.outcome, schema.AllowedOutcome) else ""
    offered_options = {option for option, _, _ in _options_of(interrupt)}
    return option_id if option_id in offered_options else make_default_answer(interrupt, _CANCELED)


async def ask_form(client: Client, session: str, turn: str, interrupt: Interrupt) -> str | Answer:
    """Ask a question in a form, and return the answer. A form that is declined or canceled declines the question."""
    choices = list(interrupt.choices) or None
    field = schema.ElicitationStringPropertySchema(type="string", title="Answer", enum=choices)
    form = schema.ElicitationFormSessionMode(
        session_id=session,
        tool_call_id=f"{turn}/{asking_call(interrupt)}" if interrupt.call else None,
        requested_schema=schema.ElicitationSchema(type="object", properties={"answer": field}, required=["answer"]),
    )
    response = await client.create_elicitation(clean(words(interrupt, choices=False)), form)
    content = response.content if isinstance(response, schema.AcceptElicitationResponse) else None
    answer = None if content is None else content.get("answer")
    return answer if isinstance(answer, str) else make_default_answer(interrupt, _CANCELED)


async def confirm(client: Client, session: str, call: str, question: str) -> bool:
    """Ask a question of yes or no that is about no call of a turn. A canceled question is a no."""
    options = [
        schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
        schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
    ]
    response = await client.request_permission(
        session, schema.ToolCallUpdate(tool_call_id=call, title=question, status="pending"), options
    )
    return isinstance(response.outcome, schema.AllowedOutcome) and response.outcome.option_id == "yes"


def asks_permission(interrupt: Interrupt) -> bool:
    """Return whether an interrupt is asked as a permission."""
    return interrupt.kind in _OPTIONS
