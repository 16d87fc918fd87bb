"""`python -m turnwright` is the command line."""

from .cli import main

main()
