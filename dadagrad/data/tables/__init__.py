"""Tables, such as CSV, Parquet and data frames, as rows of features."""
