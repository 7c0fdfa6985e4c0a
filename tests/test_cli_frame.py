"""The frame around every verb: words refused with the nearest one, one JSON object, exit codes, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from asp_neuro import __version__
from asp_neuro.cli.main import VERBS, Result, Verb
from asp_neuro.errors import AspError, CheckFailed, InputError


def verb(run, name="act"):
    """A verb made for a test, with an option that has choices and one that takes a number."""

    def arguments(parser):
        parser.add_argument("--backend", choices=("fast", "sim"), default="fast")
        parser.add_argument("--limit", type=int)

    return Verb(name, "act for a test", f"asp-neuro {name}", arguments, run)


def raising(error):
    def run(args):
        raise error

    return (verb(run),)


WORKS = (verb(lambda args: Result({"backend": args.backend}, f"ran on {args.backend}")),)


def test_a_person_gets_the_text(cli):
    said = cli("act", "--backend", "sim", verbs=WORKS)
    assert (said.code, said.out, said.err) == (0, "ran on sim\n", "")


def test_a_script_gets_one_object(cli):
    said = cli("act", "--json", verbs=WORKS)
    assert (said.code, said.json, said.err) == (0, {"backend": "fast"}, "")


@pytest.mark.parametrize("words", [("--json", "act"), ("act", "--json")])
def test_json_may_stand_before_or_after_the_verb(cli, words):
    assert cli(*words, verbs=WORKS).json == {"backend": "fast"}


def test_what_a_verb_prints_by_accident_does_not_reach_stdout_with_json(cli):
    def chatty(args):
        print("a library says hello")
        return Result({"done": True}, "done")

    said = cli("act", "--json", verbs=(verb(chatty),))
    assert said.json == {"done": True}
    assert "hello" in said.err


def test_what_a_child_process_prints_does_not_reach_stdout_with_json(tmp_path):
    program = """
        import os, sys
        from asp_neuro.cli.main import Result, Verb, main
        from asp_neuro.cli.verbs import no_arguments
        def chatty(args):
            os.system("echo from a child")
            os.write(1, b"from C code\\n")
            return Result({"done": True}, "")
        sys.exit(main(["act", "--json"], (Verb("act", "s", "e", no_arguments, chatty),)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout == '{"done": true}\n'
    assert "from a child" in done.stderr
    assert "from C code" in done.stderr


def test_a_check_that_says_no_keeps_its_report_and_exits_1(cli):
    verbs = (verb(lambda args: Result({"mismatches": 3}, "3 mismatches", exit_code=1)),)
    assert (cli("act", verbs=verbs).code, cli("act", "--json", verbs=verbs).json) == (1, {"mismatches": 3})


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["atc"], "'atc'; did you mean 'act'?"),
        (["act", "--bakend", "sim"], "'--bakend'; did you mean '--backend'?"),
        (["act", "--bakend=sim"], "'--bakend'; did you mean '--backend'?"),
        (["act", "--backend", "fsat"], "'fsat'; did you mean 'fast'?"),
        (["act", "--back", "sim"], "--back"),  # no abbreviations
        (["act", "stray"], "unexpected argument: 'stray'"),
        (["act", "--limit", "few"], "invalid int value: 'few'"),
        (["act", "--limit"], "expected one argument"),
        ([], "a verb is needed: act"),
        (["--verison"], "'--verison'; did you mean '--version'?"),
    ],
)
def test_a_wrong_word_is_refused_with_the_nearest_one(cli, words, hint):
    said = cli(*words, verbs=WORKS)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("asp-neuro: error: ")
    assert hint in said.err
    assert said.err.count("\n") <= 2
    as_json = cli(*words, "--json", verbs=WORKS)
    assert as_json.code == 2
    assert as_json.json["error"]["kind"] == "usage"


def test_every_kind_of_error_ends_with_its_own_exit_code(cli):
    for kind in AspError.__subclasses__():
        said = cli("act", "--json", verbs=raising(kind("clouds/a.off: empty file")))
        assert said.code == kind.exit_code
        assert said.json == {"error": {"kind": kind.kind, "message": "clouds/a.off: empty file"}}
        assert said.err == "asp-neuro: error: clouds/a.off: empty file\n"
    assert {InputError.exit_code, CheckFailed.exit_code} == {1, 2}


def test_the_traceback_is_shown_with_debug_only(cli):
    assert "Traceback" not in cli("act", verbs=raising(InputError("no"))).err
    shown = cli("act", "--debug", verbs=raising(InputError("no"))).err
    assert "Traceback" in shown
    assert shown.endswith("asp-neuro: error: no\n")


def test_a_fault_of_ours_is_one_line_that_names_debug(cli):
    said = cli("act", "--json", verbs=raising(ZeroDivisionError("division by zero\nmore")))
    assert (said.code, said.json["error"]["kind"]) == (2, "internal")
    assert said.err.count("\n") == 1
    assert "ZeroDivisionError: division by zero; run again with --debug" in said.err


def test_a_full_disk_is_told_in_the_systems_words(cli):
    said = cli("act", "--json", verbs=raising(OSError(28, "No space left on device", "model.net")))
    assert (said.code, said.json["error"]) == (2, {"kind": "system", "message": "model.net: No space left on device"})


def test_ctrl_c_exits_130(cli):
    said = cli("act", "--json", verbs=raising(KeyboardInterrupt()))
    assert (said.code, said.json["error"]["kind"]) == (130, "interrupted")


SLEEPER = """
import sys, time
from asp_neuro.cli.main import Result, Verb, main
from asp_neuro.cli.verbs import no_arguments
def sleep(args):
    try:
        print("asleep", file=sys.stderr, flush=True)
        time.sleep(60)
    finally:
        print("cleaned up", file=sys.stderr, flush=True)
    return Result({}, "")
sys.exit(main(["act"], (Verb("act", "s", "e", no_arguments, sleep),)))
"""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_cleans_up_and_exits_with_its_code(sent, code):
    child = subprocess.Popen([sys.executable, "-c", SLEEPER], stderr=subprocess.PIPE, text=True)
    assert child.stderr.readline() == "asleep\n"
    child.send_signal(sent)
    rest = child.communicate(timeout=30)[1]
    assert child.returncode == code
    assert "cleaned up" in rest
    assert "Traceback" not in rest


def test_main_leaves_the_signal_handler_as_it_found_it(cli):
    before = signal.getsignal(signal.SIGTERM)
    cli("act", verbs=WORKS)
    assert signal.getsignal(signal.SIGTERM) is before


TALKER = """
import sys
from asp_neuro.cli.main import Result, Verb, main
from asp_neuro.cli.verbs import no_arguments
def talk(args):
    return Result({"x": "y" * 10**6}, "y" * 10**6)
sys.exit(main(sys.argv[1:], (Verb("act", "s", "e", no_arguments, talk),)))
"""


@pytest.mark.parametrize("words", [["act"], ["act", "--json"]])
def test_a_reader_that_leaves_early_is_no_error(words):
    read, write = os.pipe()
    os.close(read)
    child = subprocess.run([sys.executable, "-c", TALKER, *words], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (child.returncode, child.stderr) == (0, "")


def test_nobody_left_to_hear_an_error_exits_141():
    read, write = os.pipe()
    os.close(read)
    child = subprocess.run([sys.executable, "-c", TALKER, "atc"], stdout=write, stderr=write)
    os.close(write)
    assert child.returncode == 141


@pytest.mark.parametrize("name", [verb.name for verb in VERBS])
def test_every_verb_has_help_with_an_example_and_the_common_options(cli, name):
    said = cli(name, "--help")
    assert said.code == 0
    assert f"example:\n  asp-neuro {name}" in said.out
    assert "--json" in said.out
    assert "--debug" in said.out


@pytest.mark.parametrize("row", VERBS, ids=lambda row: row.name)
def test_every_example_can_be_parsed(row):
    from asp_neuro.cli.main import build_parser

    program, *words = row.example.split()
    assert (program, build_parser().parse_args(words).verb) == ("asp-neuro", row.name)


def test_the_help_lists_every_verb(cli):
    listed = cli("--help").out
    assert all(f"\n    {row.name} " in listed and row.summary in listed for row in VERBS)


def test_help_is_for_people_even_beside_json(cli):
    assert cli("doctor", "--json", "--help").out == cli("doctor", "--help").out != ""


def test_the_version_is_the_packages(cli):
    said = cli("--version")
    assert (said.code, said.out) == (0, f"asp-neuro {__version__}\n")
