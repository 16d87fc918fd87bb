"""The check of each peer's fake model: the last request must contain the whole history.

The yardstick sees how often the model was called and how the turn ended. That the results of all calls came back to the
model, and in one request, only the fake can see; each counts them in the format of its framework.
"""

from bench.yardstick import Script


def check(script: Script, results: int) -> None:
    """See that the last request of a turn holds the results of all its calls.

    Raises RuntimeError when it does not, so that a framework that drops, trims or doubles results is not measured.
    """
    due = 2 * (script.steps - 1)
    if results != due:
        raise RuntimeError(f"the last request holds {results} results of tools, not {due}")
