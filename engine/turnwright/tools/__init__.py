"""Tools: what a model may call, how a batch of calls runs, and the ones that the command line brings."""
