"""The command ``kvledger``: the package's computations on the reader's own lengths and traces.

Everything is computed before the first line is printed. What cannot be accounted for is one line
on stderr; ``--debug``, before the command or after it, shows the traceback as well.

Exit status: 0 done; 1 an error of the program itself; 2 something given cannot be used, or the
result cannot be written; 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence

from kvledger.core.errors import InputError, LedgerError
from proofbook.plaintext import printable

DONE, BROKEN, UNUSABLE, INTERRUPTED = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process when not given.

    Examples
    --------
    >>> main(["account", "--lengths", "5,9,17", "--page-size", "4", "--reserve", "oracle",
    ...       "--c", "1", "--test-sizes", "4"])
    lengths given: 3 requests, 31 tokens, mean 10.3, longest 17
    <BLANKLINE>
    policy          allocated slots  tail slack  reserved  unused  pages
    reserve oracle               31           0         0   0.00%      -
    pages of 4                   40           9         0  22.50%     10
    <BLANKLINE>
    c (token slots a page)  best page size   cost
    1                                    4  50.00
    <BLANKLINE>
    best page size  from c  to c  exactly to
    4                    0   any         any
    0
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = _take_debug(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale may lack a letter of a name
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            if not debug:
                warnings.simplefilter("ignore")  # what libraries say of themselves
            return _run(arguments)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED, debug)
    except InputError as error:
        # Some computations say in words what an interrupt left.
        interrupted = isinstance(error.__context__, KeyboardInterrupt)
        return _say(str(error), INTERRUPTED if interrupted else UNUSABLE, debug)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _say(f"{where}{error.strerror or error}", UNUSABLE, debug)
    except Exception as error:
        hint = "" if debug else " (--debug shows where)"
        text = f"internal error, {type(error).__name__}: {error}{hint}"
        return _say(text, BROKEN, debug)


def _take_debug(arguments: list[str]) -> bool:
    """Take ``--debug`` out of the arguments, wherever it stands."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = arguments[:end]
    arguments[:end] = [option for option in options if option != "--debug"]
    return "--debug" in options


def _run(arguments: list[str]) -> int:
    import typer

    from kvledger.cli.app import COMMANDS, make_app

    completing = "_KVLEDGER_COMPLETE" in os.environ
    if not arguments and not completing:
        raise LedgerError(f"no command; accepted: {', '.join(COMMANDS)} (kvledger --help)")
    named = arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else COMMANDS
    command = typer.main.get_command(make_app(named))
    try:
        result = command.main(args=arguments, prog_name="kvledger", standalone_mode=False)
    except typer.TyperException as error:
        raise LedgerError(f"{error.format_message().rstrip('.')} (see --help)") from error
    if isinstance(result, str):
        return _print(result)
    if result == INTERRUPTED:
        raise KeyboardInterrupt
    return int(result or DONE)


def _print(text: str) -> int:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `kvledger account … | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # The interpreter would try again when it exits, and say so in lines of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise LedgerError(f"the output cannot be written: {error.strerror}") from error
    return DONE


def _say(text: str, status: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print("kvledger: " + printable("; ".join(text.split("\n"))), file=sys.stderr)
    return status
