"""A turn as a node of a LangGraph graph: `python examples/langgraph_node.py` (no network, no key).

Needs LangGraph: `pip install 'turnwright[examples]'`. The graph keeps what it is good at, and the turn what it is good
at: the node runs a whole turn and hands its outcome and its reason to the edges. A turn that asks a person ends the
node; LangGraph's `interrupt` asks, and another node resumes the turn. LangGraph runs a node again from its beginning
when it resumes, which does no harm here: the node that asks does nothing else, and the turn's journal knows what ran.
"""

import asyncio
from typing import Literal, TypedDict

# An optional extra: who checks types need not have it.
from langgraph.checkpoint.memory import InMemorySaver  # pyright: ignore[reportMissingImports]
from langgraph.graph import END, START, StateGraph  # pyright: ignore[reportMissingImports]
from langgraph.types import Command, interrupt  # pyright: ignore[reportMissingImports]

from turnwright import Agent, Engine, tool
from turnwright.journal.result import TurnResult
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for

AGENT = Agent(name="Cleaner", steps=4)


class State(TypedDict):
    """The graph's state: plain values, which any checkpointer can keep."""

    request: str
    turn: str
    outcome: str
    reason: str
    text: str
    #: The questions to a person, by the id of the interrupt.
    interrupts: dict[str, str]
    answers: dict[str, str]
    handed_over: bool


#: The part of the state that a node changes.
Update = dict[str, object]

ran: list[str] = []


@tool(needs_approval=True)
async def delete_file(path: str) -> str:
    """Delete a file."""
    ran.append(path)
    return f"deleted {path}"


def say(request: ModelRequest) -> ModelResponse:
    """A scripted model in place of yours: it deletes one file after another, as long as it may."""
    if request.tool_choice == "none":
        return ModelResponse(text=f"I deleted {len(ran)} files, and there are more.")
    return asks_for(("delete_file", {"path": f"old{len(ran) + 1}.log"}))


def what_came_of(turn: TurnResult) -> Update:
    """The part of the graph's state that a turn updates."""
    return {
        "turn": turn.id,
        "outcome": str(turn.outcome or "paused"),
        "reason": str(turn.reason),
        "text": turn.text,
        "interrupts": {interrupt.id: f"{interrupt.tool}({interrupt.arguments})" for interrupt in turn.interrupts},
    }


def make_graph(engine: Engine) -> StateGraph[State]:
    """Make a graph with a turn in it: work, ask and continue for each question, and hand over at a limit."""

    async def work(state: State) -> Update:
        return what_came_of(await engine.run(AGENT, state["request"]))

    def ask(state: State) -> Update:
        return {"answers": interrupt(state["interrupts"])}

    async def go_on(state: State) -> Update:
        return what_came_of(await engine.resume(state["turn"], state["answers"]))

    def hand_over(_: State) -> Update:
        return {"handed_over": True}

    def edge(state: State) -> Literal["ask", "hand_over", "__end__"]:
        if state["outcome"] == "paused":
            return "ask"
        return END if state["outcome"] in ("finished", "synthesis_done") else "hand_over"

    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_node("ask", ask)
    graph.add_node("go_on", go_on)
    graph.add_node("hand_over", hand_over)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", edge)
    graph.add_edge("ask", "go_on")
    graph.add_conditional_edges("go_on", edge)
    graph.add_edge("hand_over", END)
    return graph


async def main() -> None:
    """One turn that asks four times, and stops at its limit."""
    async with Engine(model=ScriptedModel(say, repeat=True), tools=[delete_file]) as engine:
        graph = make_graph(engine).compile(checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "1"}}
        state = await graph.ainvoke({"request": "Tidy up"}, config)
        while "__interrupt__" in state:
            questions = state["__interrupt__"][0].value
            print("asked:   ", *questions.values())
            state = await graph.ainvoke(Command(resume=dict.fromkeys(questions, "yes")), config)
        print("ran:     ", *ran)
        print("outcome: ", state["outcome"], state["reason"], "handed over" if state["handed_over"] else "")
        print("model:   ", state["text"])


if __name__ == "__main__":
    asyncio.run(main())
