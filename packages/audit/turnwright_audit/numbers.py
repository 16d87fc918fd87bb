"""Numbers as people read them."""


def abbreviate(number: float) -> str:
    """Return a number with at most three digits and a unit: 950, 12.3k, 4.56M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            amount = number / (1000 if unit == "k" else size)
            return f"{amount:.3g}{unit}" if amount < 1000 else f"{amount:.0f}{unit}"  # noqa: PLR2004
    return f"{number:,.0f}"


def percent(part: float, whole: float) -> str:
    """Return a share in percent, with a digit more below 1 %; empty without a whole."""
    if not whole:
        return ""
    share = 100 * part / whole
    return f"{share:.1f}%" if 0 < share < 1 else f"{share:.0f}%"
