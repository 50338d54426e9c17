"""Bytes by URL: folders, memory and object stores."""
