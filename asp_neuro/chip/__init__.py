"""Lava: the supervised session, the CPU simulator, Loihi 2."""

import multiprocessing

# Lava, imported, says that processes are forked, and fails where a library has used processes and so has settled it.
if multiprocessing.get_start_method(allow_none=True) == "fork":
    multiprocessing.set_start_method(None, force=True)
