"""Work on rows: gradients and online steps."""
