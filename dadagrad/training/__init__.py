"""Training and resuming."""
