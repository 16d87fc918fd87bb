"""Tools for the first turn: `turnwright run --tools examples/arithmetic.py "What is 17 * 23?"`."""

from turnwright import tool


@tool
async def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a * b
