"""Progress of long work for people."""
