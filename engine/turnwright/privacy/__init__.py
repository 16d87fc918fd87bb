"""What must not be shown, and what must be shown in full: secrets, personal data, invisible characters."""
