"""A desk that answers with a quote, whose total it checks."""

from typing import Annotated

from pydantic import BaseModel, Field

from turnwright import Agent, Retry, TurnContext, TurnResult


class Quote(BaseModel):
    """A quote in cents."""

    items: list[Annotated[int, Field(ge=1, le=1000)]]
    total: int | None = None


async def correct_total(_ctx: TurnContext, quote: Quote) -> Quote:
    """Refuse a quote with a wrong total."""
    if quote.total != sum(quote.items):
        raise Retry(f"the total must be {sum(quote.items)}")
    return quote


DESK = Agent(
    name="Quote desk", instructions="Write quotes.", tools=(), output_type=Quote, output_validators=(correct_total,)
)


def invariant_quotes_have_their_total(turn: TurnResult[object]) -> None:
    """A quote has the total of its items."""
    quote = turn.output
    assert not isinstance(quote, Quote) or quote.total == sum(quote.items), f"the total of {quote} is wrong"
