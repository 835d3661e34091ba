"""What a bad command line is answered with: one line without the words of the parser.

tyro has no public way to get at its messages before they are framed, so its box is read here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from onelip.errors import did_you_mean


def message_of(box: str, command: str, flags: Sequence[str]) -> str:
    """One line from tyro's error box: what is wrong, what was probably meant, and where to read on.

    `flags` are the options that the command has.
    """
    parts = unboxed(box)
    text = re.sub(r"^Error parsing (spec[.\w]*|[\w.-]*-?options[.\w-]*): ", "", parts)
    see = f"see onelip {command} --help"
    unknown = re.match(r"Unrecognized options: (.*?)(;|$)", text)
    if unknown:
        word = next((w for w in unknown[1].split(", ") if w.startswith("-")), unknown[1].split(", ")[0])
        kind = "option" if word.startswith("-") else "argument"
        commands = re.search(r"Available subcommands: (.*?)(;|$)", text)
        if commands:
            return f"{word!r} is none of {commands[1]}{did_you_mean(word, commands[1].split(', '))}; {see}"
        return f"{command} has no {kind} {word!r}{_closest_option(word, flags)}; {see}"
    choice = re.match(r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*?),?\)", text)
    if choice:
        known = sorted(name for name in re.findall(r"'(.*?)'", choice[3]) if name != "None")
        return f"{choice[2]}: {choice[1]!r} is none of {', '.join(known)}{did_you_mean(choice[1], known)}; {see}"
    wrong = re.match(r"Error parsing (\S+): .*?(with base 10|string to float): ('.*?')", text)
    if wrong:
        kind = "whole number" if wrong[2] == "with base 10" else "number"
        return f"{wrong[1]}: {wrong[3]} is no {kind}; {see}"
    missing = re.match(r"Missing value for argument '(.*?)'", text)
    if missing:
        return f"{missing[1]} needs a value; {see}"
    required = re.match(r"Missing from onelip [\w ]*: (.*?) (.*?)\.? \(required\)", text)
    if required:
        return f"{command} needs {required[1].replace('STR', 'a name')}: {required[2]}; {see}"
    return re.sub(r"; (Argument helptext: .*?; )?For full helptext, (run|see):? onelip .*$", f"; {see}", text)


def _closest_option(word: str, flags: Sequence[str]) -> str:
    """`did_you_mean` without the dashes, which all options share."""
    close = did_you_mean(word.lstrip("-"), [flag.lstrip("-") for flag in flags])
    return close.replace("mean '", "mean '--") if word.startswith("-") else ""


def unboxed(box: str) -> str:
    """The text of one of tyro's boxes as one line: frames and line breaks removed, no word lost."""
    box = box[max(box.find("╭"), 0) :]  # what options said before, such as how many images a folder has
    rows = [row.strip("│ ") for row in box.splitlines() if not row.startswith(("╭", "╰"))]
    # A row of dashes separates two parts; other rows of one part are broken only for the width of the terminal.
    parts = [" ".join(part.split()).rstrip(".") for part in re.split(r"\n─+\n", "\n".join(rows))]
    return "; ".join(part for part in parts if part)
