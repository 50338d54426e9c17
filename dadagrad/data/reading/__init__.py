"""Options to read sources of rows, and their text files as chunks of whole lines."""
