"""Data of the experiments: readers of real files, small generated languages, and what lies between them and a model."""
