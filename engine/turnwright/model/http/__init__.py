"""What models over HTTP share: the client, the exchange, the stream, errors and timeouts."""
