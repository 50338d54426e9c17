"""Models: saving, loading, evaluation and prediction."""
