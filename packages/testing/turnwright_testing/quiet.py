"""A block in which intended failures log nothing, and Hypothesis leaves no files behind."""

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import configuration
from hypothesis.errors import HypothesisWarning


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the log and the warnings about intended failures, and Hypothesis's files in the working directory."""
    before = logging.root.manager.disable
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)  # it finds examples too large to be shown, and nobody asks
        configuration.set_hypothesis_home_dir(Path(folder))
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)
            configuration.set_hypothesis_home_dir(None)
