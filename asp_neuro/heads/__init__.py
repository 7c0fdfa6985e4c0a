"""Ways to run the spiking head, one file each."""
