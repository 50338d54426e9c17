"""Checkpoints: written in the background, committed whole or not at all."""
