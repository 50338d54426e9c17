"""Reports of models and runs: pages for a browser, JSON, and live pages."""
