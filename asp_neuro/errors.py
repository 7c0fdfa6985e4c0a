"""What can go wrong, as types: each error is one or two lines for a person, and an exit code for a script.

Exit codes (0 is done): 1 a check said no, 2 usage / bad input / a missing piece, 3-5 Loihi 2, 6 a Lava session failed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AspError(Exception):
    """Base of every error that a user can cause or mend; `kind` is what `--json` prints."""

    kind = "error"
    exit_code = 2


class UsageError(AspError):
    """The command line, or a call, does not make sense."""

    kind = "usage"


class InputError(AspError):
    """A file, a cloud or a data set cannot be used; the message names it and the reason."""

    kind = "input"


class ConfigError(AspError):
    """A recipe or a hardware description is wrong; the message names the key, the value and the limit."""

    kind = "config"


class MissingError(AspError):
    """Something that should be there is not (data, a library, a program); the message says what to do next."""

    kind = "missing"


class CheckFailed(AspError):
    """A check ran and said no."""

    kind = "check"
    exit_code = 1


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest known word, or the list of known words when none is close."""
    words = sorted(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(words)}"
