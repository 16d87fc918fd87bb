"""Builds what a model is sent: instructions, history, the turn so far, and what is said only for this one call."""

from collections.abc import Sequence

from turnwright_states import CallModel, Conclude, Turn

from .agent import Agent
from .conclude import conclude_instruction, prompt
from .message import Message
from .model.protocol import Request, ToolSpec
from .pairing import check_pairing


def build_request(
    action: CallModel | Conclude,
    turn: Turn,
    agent: Agent,
    *,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
) -> Request:
    """The request of one model call.

    `messages` are the history's and the turn's, with what a `prepare` hook made of them. The definitions of the tools
    stay when tools are disabled, and what is said for this call alone is said in the user's role: providers answer
    400 to emptied tools and to a trailing assistant message (DESIGN 4.7). Raises `UnpairedError`.
    """
    said = [message for message in messages if message.says_something]
    if agent.instructions:
        said.insert(0, Message.system(agent.instructions))
    if isinstance(action, Conclude):
        said.append(Message.user(conclude_instruction(turn, action.reason, agent.conclude_prompt)))
    elif action.nudge:
        said.append(Message.user(prompt("nudge").strip()))
    check_pairing(said)
    return Request(
        messages=tuple(said),
        tools=tuple(tools),
        tool_choice="auto" if isinstance(action, CallModel) and action.tools else "none",
        max_tokens=action.max_tokens,
        first=isinstance(action, CallModel) and turn.counters.steps <= 1,
    )
