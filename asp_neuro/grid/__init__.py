"""The host's exact arithmetic: numbers on grids, sums that never round, the same bits on every machine."""

ARITHMETIC = 3  # raise it when a margin or a choice can come out otherwise: certificates of another one are void
