"""The readers of recorded runs, one module a format. `turnwright_audit.trajectories.formats` lists them."""
