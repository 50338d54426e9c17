"""Work on rows: gradients, online steps, progressive validation."""
