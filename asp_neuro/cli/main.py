"""The command line: the one place where results, errors and signals meet the outside. The verbs are in `verbs/`.

Exit codes: 0 done; 1 a check said no; 2 usage, bad input, a missing piece, or a fault of ours; 3, 4, 5 Loihi 2;
6 a Lava session failed; 130 / 143 interrupted; 141 the reader of our output left before the work was done.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, TextIO

from asp_neuro import __version__
from asp_neuro.cli.verbs import VERBS, Result, Verb
from asp_neuro.errors import AspError, UsageError, nearest
from asp_neuro.report import say, to_json

PROGRAM = "asp-neuro"
INTERRUPTED, TERMINATED, READER_GONE = 130, 143, 141
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class _Parser(argparse.ArgumentParser):
    """argparse that raises our errors and names the nearest valid word."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.verb_parsers: dict[str, _Parser] = {}

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see: {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, f"unknown: '{value}'{nearest(str(value), known)}")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, extra = self.parse_known_args(args, namespace)
        if extra:
            parser = self.verb_parsers.get(parsed.verb, self)
            parser.verb_parsers.get(getattr(parsed, "part", ""), parser).refuse(extra)
        return parsed

    def refuse(self, extra: Sequence[str]) -> NoReturn:
        options = [word for word in extra if word.startswith("-")]
        if not options:
            self.error(f"unexpected argument: '{extra[0]}'")
        word = options[0].split("=")[0]
        known = [name for name in self._option_string_actions if name.startswith("--")]
        self.error(f"unknown option: '{word}'{nearest(word, known)}")


def build_parser(verbs: Sequence[Verb] = VERBS) -> _Parser:
    parser = _Parser(
        prog=PROGRAM,
        description="Active Spiking Perception: one cloud in, one answer out, looking at no more than it takes.",
        epilog="Exit codes: 0 done; 1 a check said no; 2 usage, bad input or a missing piece; 3-5 Loihi 2;\n"
        "6 a Lava session failed; 130 / 143 interrupted.  Each verb: asp-neuro VERB --help",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    _add_common(parser, default=False)
    _add_verbs(parser, verbs, dest="verb", title="verbs")
    return parser


def _add_verbs(parser: _Parser, verbs: Sequence[Verb], dest: str, title: str) -> None:
    rows = parser.add_subparsers(dest=dest, metavar=dest.upper(), title=title, parser_class=_Parser)
    for verb in verbs:
        sub = rows.add_parser(
            verb.name, help=verb.summary, description=_sentence(verb.summary), epilog=f"example:\n  {verb.example}"
        )
        verb.add_arguments(sub)
        # SUPPRESS: `asp-neuro --json VERB` must not be overwritten by the verb's own default
        _add_common(sub, default=argparse.SUPPRESS)
        sub.set_defaults(run=verb.run)
        if verb.parts:
            _add_verbs(sub, verb.parts, dest="part", title="parts")
    parser.verb_parsers = dict(rows.choices)


def _add_common(parser: argparse.ArgumentParser, default: Any) -> None:
    for flag, text in (
        ("--json", "print one JSON object on stdout, nothing else there"),
        ("--debug", "show the traceback of an error"),
    ):
        parser.add_argument(flag, action="store_true", default=default, help=text)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


class _Terminated(SystemExit):
    """SIGTERM, as an exception, so that every `finally` on the way out runs."""


def main(argv: Sequence[str] | None = None, verbs: Sequence[Verb] = VERBS) -> int:
    """Run one verb and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for_people = any(_asked(flag, words) for flag in ("-h", "--help", "--version"))
    as_json, debug = _asked("--json", words) and not for_people, _asked("--debug", words)
    try:
        with _sigterm_raises(), _stdout_kept_for_json(as_json) as stdout:
            try:
                result = _run(words, verbs)
            except (Exception, KeyboardInterrupt, _Terminated) as error:
                result = _failure(error, as_json, debug)
            return _emit(result, as_json, stdout)
    except BrokenPipeError:  # while an error was being told
        _silence()
        return READER_GONE


def _asked(flag: str, words: list[str]) -> bool:
    """Whether a flag stands in the words, before any `--`; needed before (and when) parsing fails."""
    return flag in (words[: words.index("--")] if "--" in words else words)


def _run(words: list[str], verbs: Sequence[Verb]) -> Result:
    parser = build_parser(verbs)
    args = parser.parse_args(words)
    if args.verb is None:
        parser.error(f"a verb is needed: {', '.join(verb.name for verb in verbs)}")
    bind_threads(getattr(args, "threads", None))
    result = args.run(args)
    assert isinstance(result, Result), f"{args.verb} returned {type(result).__name__}, not a Result"
    return result


def bind_threads(n: int | None) -> None:
    """One thread for every verb, or `--threads`: more only get in each other's way on small products.

    Before a verb imports anything, for numpy's and scipy's BLAS (one each) and torch's OpenMP look once, when they are
    loaded. What a person has set (OMP_NUM_THREADS stands for all three) is kept.
    """
    told = os.environ.get(THREADS[0])
    for name in THREADS:
        if n is not None or name not in os.environ:
            os.environ[name] = str(n or told or 1)


def _failure(error: BaseException, as_json: bool, debug: bool) -> Result:
    if isinstance(error, BrokenPipeError) and (_reader_gone(1) or _reader_gone(2)):
        raise error
    kind, message, exit_code = _explain(error)
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    say(f"{PROGRAM}: error: {message}")
    return Result({"error": {"kind": kind, "message": message}}, "", exit_code)


def _explain(error: BaseException) -> tuple[str, str, int]:
    """Kind, message and exit code of anything that can end a verb."""
    if isinstance(error, AspError):
        return error.kind, str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", _with_next_step("interrupted", error), INTERRUPTED
    if isinstance(error, _Terminated):
        return "interrupted", _with_next_step("terminated", error), TERMINATED
    if isinstance(error, OSError) and error.strerror:  # disk full, no permission, no such file: the system says it best
        place = f"{error.filename}: " if error.filename else ""
        return "system", f"{place}{error.strerror}", 2
    if isinstance(error, ImportError):  # nobody demanded it: an install that is not whole
        from asp_neuro.libraries import broken

        return "missing", broken(error), 2
    if isinstance(error, MemoryError):
        return "system", "out of memory", 2
    first_line = (str(error).splitlines() or [""])[0]
    what = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    return "internal", f"unexpected {what}; run again with --debug to see where", 2


def _with_next_step(word: str, stop: BaseException) -> str:
    """What a verb has added to the signal that ended it: how to go on."""
    return "; ".join([word, *(told for told in stop.args if isinstance(told, str))])


def _emit(result: Result, as_json: bool, stdout: TextIO) -> int:
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0":
        return result.exit_code  # under torchrun the first process speaks for all
    text = to_json(result.report) if as_json else result.text
    try:
        if text:
            print(text, file=stdout)
        stdout.flush()
    except BrokenPipeError:  # the work is done, the reader has seen enough
        _silence()
    return result.exit_code


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    def raise_terminated(signum: int, frame: object) -> NoReturn:
        raise _Terminated(TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _stdout_kept_for_json(as_json: bool) -> Iterator[TextIO]:
    """The stream for the result. With `--json`, whatever else is printed on stdout (by C code too) goes to stderr."""
    stdout = sys.stdout
    if not as_json:
        yield stdout
        return
    with contextlib.ExitStack() as undo:
        if _fileno(stdout) == 1:
            stdout.flush()
            kept = os.dup(1)
            undo.callback(os.close, kept)
            undo.callback(os.dup2, kept, 1)
            os.dup2(2, 1)
            stdout = undo.enter_context(os.fdopen(os.dup(kept), "w", encoding="utf-8"))
        undo.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield stdout


def _fileno(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _reader_gone(fd: int) -> bool:
    """Whether `fd` is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(fd, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _silence() -> None:
    """Point the broken streams at nothing, so that the interpreter's last flush is quiet."""
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2):
            if _reader_gone(fd):
                os.dup2(nothing, fd)
        os.close(nothing)
