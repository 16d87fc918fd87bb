"""Models: what the driver asks of one, and the ones that we speak ourselves."""
