"""Helpers of the tests: cases, servers and processes."""
