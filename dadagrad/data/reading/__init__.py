"""Names of sources, options to read them, and text files as chunks of whole lines."""
