"""Who may see a page, its address, and how it is sent."""
