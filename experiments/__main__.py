"""python -m experiments [per-vector | single | seq2seq | predict | report | claims] ..."""

import sys

try:
    from experiments.cli import main

    main()
except KeyboardInterrupt:  # before there was anything to save
    sys.exit(130)
