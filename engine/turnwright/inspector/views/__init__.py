"""What the pages show, computed from journals."""
