"""The stock form of neuron: free-running stock LIF and Dense, current as membrane; Loihi 2 without microcode."""
