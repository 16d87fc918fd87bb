"""A desk that files complaints in the queue of their kind."""

from typing import Final, Literal

from turnwright import Agent, tool

QUEUES: Final[dict[str, list[str]]] = {"returns": [], "workshop": []}
COMPLAINTS: Final[list[str]] = []


def reset() -> None:
    """Start with empty queues."""
    COMPLAINTS.clear()
    for queue in QUEUES.values():
        queue.clear()


@tool
async def file_complaint(kind: Literal["refund", "exchange", "repair"], text: str) -> str:
    """File a complaint."""
    COMPLAINTS.append(text)
    if kind == "refund":
        QUEUES["returns"].append(text)
    elif kind == "repair":
        QUEUES["workshop"].append(text)
    return f"your {kind} is on its way"


DESK = Agent(name="Complaints", instructions="File complaints.", tools=("file_complaint",))


def invariant_every_complaint_is_in_a_queue() -> None:
    """No complaint is lost."""
    filed = [text for queue in QUEUES.values() for text in queue]
    assert len(filed) == len(COMPLAINTS), f"{len(COMPLAINTS)} complaints, {len(filed)} in queues"
