"""The common parts of models over HTTP: the client, the exchange, the stream, errors and timeouts."""
