"""Lava: the supervised session, the CPU simulator, Loihi 2."""
