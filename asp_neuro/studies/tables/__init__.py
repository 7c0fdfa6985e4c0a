"""The paper's tables on our models (J.2, J.4, J.6, J.7, J.9, J.11): a file per table, each with `table` and `picture`.

A table is a pure function of readings (`reading.py`); `run.py` reads, trains where it must, and writes.
"""
