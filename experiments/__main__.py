"""python -m experiments [per-vector | single | seq2seq | predict] ..."""

from experiments.cli import main

main()
