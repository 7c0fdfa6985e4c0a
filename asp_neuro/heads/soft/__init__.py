"""The soft form: ticked soft-reset LIF neurons, exact and provable."""
