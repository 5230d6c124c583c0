"""The command line: `qddot COMMAND`, with a file a command in this folder.

Exit codes: 0 all is well, 1 something was found wrong, 2 the file or the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

from qddot.cli import bench, cache, check, compare, convert, count, demo, export, info, sweep, view
from qddot.cli.terminal import any_encoding
from qddot.errors import QddotError, QddotWarning
from qddot.version import __version__


class Command(Protocol):
    """What a file of a command has."""

    HELP: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options of the command, besides the --json that every command has."""

    def run(self, options: argparse.Namespace) -> int:
        """Does it and returns the exit code."""
        ...


COMMANDS: dict[str, Command] = {  # in the order of the help
    "info": info,
    "check": check,
    "count": count,
    "bench": bench,
    "export": export,
    "convert": convert,
    "view": view,
    "sweep": sweep,
    "compare": compare,
    "cache": cache,
    "demo": demo,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    with any_encoding():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    warnings.simplefilter("ignore", QddotWarning)  # the commands print the findings themselves
    try:
        return int(options.run(options))
    except QddotError as error:
        if getattr(options, "json", False):
            print(json.dumps({"error": str(error)}))
        print(f"qddot: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130


class _Once(argparse.Action):
    """Stores the value of an option, and refuses a second one, which would replace the first in silence."""

    def __call__(
        self, parser: argparse.ArgumentParser, chosen: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        seen: set[str] = chosen.__dict__.setdefault("options_seen", set())
        if option is not None and self.dest in seen:
            parser.error(f"argument {option}: it is given twice, and takes one value")
        seen.add(self.dest)
        setattr(chosen, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """A parser whose options of one value are given once."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="qddot", description="Robot dynamics from a model file.")
    parser.add_argument("--version", action="version", version=f"qddot {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.HELP, description=command.HELP)
        sub.set_defaults(run=command.run)
        sub.add_argument("--json", action="store_true", help="print JSON instead of text")
        command.arguments(sub)
    return parser
