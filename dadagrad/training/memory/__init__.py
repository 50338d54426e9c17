"""Memory and traffic of a run, estimated before it starts."""
