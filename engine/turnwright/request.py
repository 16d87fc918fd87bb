"""Builds what a model is sent: instructions, history, the turn so far, and what is said only for this one call."""

import logging
from collections.abc import Sequence

from turnwright_states import CallModel, Conclude, Turn

from .agent import Agent
from .conclude import conclude_instruction, prompt
from .message import Message
from .model.protocol import Request, ToolSpec
from .notices import budget_told
from .pairing import HistoryMode, check_pairing, repaired

_LOG = logging.getLogger(__name__)


def build_request(
    action: CallModel | Conclude,
    turn: Turn,
    agent: Agent,
    *,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    mode: HistoryMode = "repair",
    tell_budget: bool | str = False,
    turn_id: str = "",
) -> Request:
    """The request of one model call.

    `messages` are the history's and the turn's, with what a `prepare` hook made of them. The definitions of the tools
    stay when tools are disabled, and what is said for this call alone is said in the user's role: providers answer
    400 to emptied tools and to a trailing assistant message (DESIGN 4.7). With `tell_budget`, true or a template, a
    step's call is told what is left of the turn; it is sent, and kept nowhere.

    Messages that are not paired are repaired, with a warning for each change that names the turn; when `mode` is
    `strict`, they raise `UnpairedError`. Message numbers count what is sent, from 0.
    """
    said = [message for message in messages if message.says_something]
    if agent.instructions:
        said.insert(0, Message.system(agent.instructions))
    if isinstance(action, Conclude):
        said.append(Message.user(conclude_instruction(turn, action.reason, agent.conclude_prompt)))
    else:
        if tell_budget and action.tools:
            said.append(Message.user(budget_told(turn, tell_budget if isinstance(tell_budget, str) else None)))
        if action.nudge:
            said.append(Message.user(prompt("nudge").strip()))
    if mode == "strict":
        check_pairing(said)
    else:
        said, notes = repaired(said)
        for note in notes:
            _LOG.warning("turn %s: a request is repaired: %s", turn_id, note)
    return Request(
        messages=tuple(said),
        tools=tuple(tools),
        tool_choice="auto" if isinstance(action, CallModel) and action.tools else "none",
        max_tokens=action.max_tokens,
        first=isinstance(action, CallModel) and turn.counters.steps <= 1,
    )
