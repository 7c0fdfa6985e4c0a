"""The bundle (`model.net`): all that a deployed model needs in one file, in NetX's HDF5 layout, hashed, safe to read.

`layout.py` says what is stored where, `write.py` and `read.py` turn that into a file and back, `golden.py` makes and
compares the golden vectors, `find.py` knows what is shipped. `docs/bundle.md` describes the format for other programs.
"""

from asp_neuro.bundle.describe import describe
from asp_neuro.bundle.find import DEFAULT, SUFFIX, find, shipped
from asp_neuro.bundle.golden import golden_mismatches, host_drives_now, make_golden
from asp_neuro.bundle.layout import contents, model_sha256
from asp_neuro.bundle.read import from_bytes, read
from asp_neuro.bundle.records import FORMAT, Bundle, Golden
from asp_neuro.bundle.write import library_versions, to_bytes, with_certificate, write

__all__ = [
    "DEFAULT", "FORMAT", "SUFFIX", "Bundle", "Golden", "contents", "describe", "find", "from_bytes",
    "golden_mismatches", "host_drives_now", "library_versions", "make_golden", "model_sha256", "read", "shipped",
    "to_bytes", "with_certificate", "write",
]  # fmt: skip
