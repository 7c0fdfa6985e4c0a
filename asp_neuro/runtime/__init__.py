"""A bundle at work: answers, comparisons, fit on a chip, energy, exchange."""
