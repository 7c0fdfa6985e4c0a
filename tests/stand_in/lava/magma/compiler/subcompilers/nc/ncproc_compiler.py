"""Stands for the compiler for neuro cores; Lava's own CPU compiler does the work here."""
