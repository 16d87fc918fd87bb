"""The readers of recorded runs, one module a format. `turnwright.trajectories.formats` lists them."""
