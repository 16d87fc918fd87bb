"""The commands of this package, which its entry points add to `turnwright`."""
