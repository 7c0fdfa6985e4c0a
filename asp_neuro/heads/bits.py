"""Bit widths that every form of neuron has in common: what the chip and Lava carry."""

DRIVE_BITS = 6  # drives of the soft form: integers at scale 2^6
DRIVE_MAX = 2**15 - 1
STATE_MIN = -(2**23)
STATE_MAX = 2**23 - 1
SYNAPTIC_MAX = 2**31 - 1  # Lava's Dense and the chip add up in int32
