"""`onelip completion bash|zsh|fish`: a script that lets the shell complete commands, options, methods and data sets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from onelip.bench.cli import command_help, command_summaries
from onelip.bench.data import list_datasets
from onelip.layers import list_methods
from onelip.protocol import SIZES

Shell = Literal["bash", "zsh", "fish"]


@dataclass(frozen=True)
class CompletionOptions:
    """Print a script that teaches your shell to complete onelip's commands, options, methods and data sets.

    Put one of these lines into the shell's start-up file:

    bash:  eval "$(onelip completion bash)"

    zsh:   eval "$(onelip completion zsh)"

    fish:  onelip completion fish | source
    """

    shell: Annotated[Shell, tyro.conf.Positional]
    """bash, zsh or fish."""

    def run(self) -> int:
        """Print the script."""
        words = known_words()
        print(_fish(words) if self.shell == "fish" else _bash(words, zsh=self.shell == "zsh"))
        return 0


_ZSH_START = (
    "whence compdef >/dev/null || { autoload -U +X compinit && compinit -u; }",  # unless the start-up file did so
    "autoload -U +X bashcompinit && bashcompinit\n",
)


def known_words() -> dict[str, list[str]]:
    """What may follow: commands under "", options under "train" and "measure time", values under "--method"."""
    words = {"": list(command_summaries())}
    for command in words[""]:
        help_text = command_help(command, [])
        parts = [option.usage for option in help_text.groups.get("subcommands", ())]
        words[command] = [*parts, *help_text.flags]
        for part in parts:
            words[f"{command} {part}"] = command_help(command, [part]).flags
    methods, datasets = [method.key for method in list_methods()], list_datasets()
    values = {"method": methods, "dataset": datasets, "size": list(SIZES)}
    return words | {f"--{name}{s}": known for name, known in values.items() for s in ("", "s")}


def _bash(words: dict[str, list[str]], *, zsh: bool) -> str:
    cases = "\n".join(f"    {json.dumps(key)}) words={json.dumps(' '.join(known))} ;;" for key, known in words.items())
    start = "\n".join(_ZSH_START) if zsh else ""
    return f"""{start}_onelip_words() {{
  local words=""
  case "$1" in
{cases}
  esac
  echo "$words"
}}
_onelip() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="" known=""
  [ "$COMP_CWORD" -gt 1 ] && command="${{COMP_WORDS[1]}}"
  case "$before" in --*) known="$(_onelip_words "$before")" ;; esac
  [ -z "$known" ] && [ "$COMP_CWORD" -gt 2 ] && known="$(_onelip_words "$command ${{COMP_WORDS[2]}}")"
  [ -z "$known" ] && known="$(_onelip_words "$command")"
  COMPREPLY=($(compgen -W "$known" -- "$word"))
}}
complete -o default -F _onelip onelip"""


def _fish(words: dict[str, list[str]]) -> str:
    lines = ["complete -c onelip -f -n __fish_use_subcommand -a " + json.dumps(" ".join(words[""]))]
    for key, known in words.items():
        first, _, second = key.partition(" ")
        seen = f"__fish_seen_subcommand_from {first}" + (
            f"; and __fish_seen_subcommand_from {second}" if second else ""
        )
        for word in known if key and not key.startswith("--") else ():
            if word.startswith("--"):
                values = words.get(word)
                choice = f" -x -a {json.dumps(' '.join(values))}" if values else ""
                lines.append(f"complete -c onelip -n {json.dumps(seen)} -l {word[2:]}{choice}")
            else:
                lines.append(f"complete -c onelip -f -n {json.dumps(seen)} -a {word}")
    return "\n".join(lines)


COMMAND = CompletionOptions
