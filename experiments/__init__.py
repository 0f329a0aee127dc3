"""The experiments: one readable script for each of the three output scenarios."""
