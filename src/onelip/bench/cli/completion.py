"""Print a script that completes commands in your shell.

```
eval "$(onelip completion bash)"  # in ~/.bashrc
eval "$(onelip completion zsh)"   # in ~/.zshrc
onelip completion fish | source   # in ~/.config/fish/config.fish
```

Put one of these lines into the shell's start-up file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onelip.bench.cli import new_app


@dataclass(frozen=True)
class Command:
    shell: Literal["bash", "zsh", "fish"]
    """Your shell."""

    def run(self) -> int:
        print(new_app().generate_completion(shell=self.shell))
        return 0
