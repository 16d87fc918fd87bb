"""A LangGraph graph whose conditional edge asks a guard: `python examples/guarded_langgraph.py` (no network, no key).

Needs LangGraph: `pip install 'turnwright[examples]'`. The graph is the usual one, a node for the model and a node for
the tools. Without the guard its edge asks whether the last message has calls, and a model that always has some goes
on until LangGraph raises an exception at its recursion limit. With the guard the edge asks whether the turn may go
on; at a limit it leads to a node in which the model concludes.
"""

import operator
from typing import Annotated, Any, TypedDict

# An optional extra: who checks types need not have it.
from langgraph.errors import GraphRecursionError  # pyright: ignore[reportMissingImports]
from langgraph.graph import END, START, StateGraph  # pyright: ignore[reportMissingImports]

from turnwright_states import CallStatus, Limits, LoopGuard, Proceed, ResultsMissing, Stopped, ToolCall

Message = dict[str, Any]


class State(TypedDict):
    """The graph's state: messages in the format of chat completions."""

    messages: Annotated[list[Message], operator.add]


def ask_model(messages: list[Message], *, tools: bool) -> Message:
    """A scripted model in place of yours: it wants one more page while it has a tool to read it with."""
    page = 1 + sum(message["role"] == "tool" for message in messages)
    if not tools:
        return {"role": "assistant", "content": f"I read {page - 1} pages, and there are more."}
    call = {"id": f"call_{page}", "name": "read_page", "arguments": {"number": page}}
    return {"role": "assistant", "content": "", "calls": [call]}


def read_page(number: int) -> str:
    """The one tool."""
    return f"page {number} ... continued on page {number + 1}"


def unguarded() -> StateGraph[State]:
    """The usual first graph, without a guard."""

    def model(state: State) -> State:
        return {"messages": [ask_model(state["messages"], tools=True)]}

    def tools(state: State) -> State:
        calls = state["messages"][-1]["calls"]
        return {"messages": [_result(call["id"], read_page(**call["arguments"])) for call in calls]}

    def edge(state: State) -> str:
        return "tools" if state["messages"][-1].get("calls") else END

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", edge, ["tools", END])
    graph.add_edge("tools", "model")
    return graph


def guarded(guard: LoopGuard) -> StateGraph[State]:
    """The same graph for one turn, whose edges all ask `guard`."""

    def model(state: State) -> State:
        may = guard.may_call_model()
        reply = ask_model(state["messages"], tools=isinstance(may, Proceed) and may.tools)
        calls = [
            ToolCall(name=call["name"], arguments=call["arguments"], provider_id=call["id"])
            for call in reply.get("calls", ())
        ]
        permits = guard.replied(reply["content"], calls)
        for call, permit in zip(reply.get("calls", ()), permits, strict=True):
            # Providers' ids are not unique; the guard's are, and any provider takes them.
            call["id"] = permit.id
        # A refused call has its result at once; for an allowed one, the edge leads to the tools.
        return {"messages": [reply, *(_result(one.id, one.refusal) for one in permits if not one.runs)]}

    def tools(state: State) -> State:
        may = guard.may_call_model()
        asked = {call["id"]: call for message in state["messages"] for call in message.get("calls", ())}
        results = []
        for permit in may.calls if isinstance(may, ResultsMissing) else ():
            guard.started(permit.id)
            text = read_page(**asked[permit.id]["arguments"])
            guard.result(permit.id, CallStatus.OK, text)
            results.append(_result(permit.id, text))
        return {"messages": results}

    def conclude(state: State) -> State:
        reply = ask_model(state["messages"], tools=False)
        guard.concluded(reply["content"])
        return {"messages": [reply]}

    def edge(_: State) -> str:
        return _where(guard)

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_node("conclude", conclude)
    for node in (START, "model", "tools", "conclude"):
        graph.add_conditional_edges(node, edge, ["model", "tools", "conclude", END])
    return graph


def _where(guard: LoopGuard) -> str:
    """The node that comes next."""
    match guard.may_call_model():
        case Proceed():
            return "model"
        case ResultsMissing():
            return "tools"
        case Stopped(conclude=True):
            return "conclude"
        case _:  # over, or a person is asked: this graph has nobody to ask
            return str(END)


def _result(call: str, text: str) -> Message:
    return {"role": "tool", "call": call, "content": text}


def main() -> None:
    """Show a model that never finishes, in each graph."""
    prompt: State = {"messages": [{"role": "user", "content": "What does the manual say?"}]}
    try:
        unguarded().compile().invoke(prompt, {"recursion_limit": 25})
    except GraphRecursionError:
        print("before: an exception at the recursion limit of 25, and no answer")
    guard = LoopGuard(Limits(steps=5), prompt="What does the manual say?")
    # The guard bounds the turn; the graph's own limit must only be out of its way.
    done = guarded(guard).compile().invoke(prompt, {"recursion_limit": 10_000})
    stop, used = guard.may_call_model(), guard.machine.turn.counters
    if isinstance(stop, Stopped):
        print(f"after:  {stop.outcome}, {stop.reason} at {used.steps} steps and {used.calls} tool calls")
        print(f"        {stop.words}")
        print(f"        model: {done['messages'][-1]['content']}")


if __name__ == "__main__":
    main()
