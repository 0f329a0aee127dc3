"""The report of a run: one HTML file that shows what was trained and lets a reader walk through its self-attention."""
