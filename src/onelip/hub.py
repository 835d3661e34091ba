"""Networks on the Hugging Face Hub, and in folders of its form (extra `hub`).

    HubNetwork(model).save_pretrained("folder")           # model.safetensors and a card
    HubNetwork(model).push_to_hub("me/certified")
    model = HubNetwork.from_pretrained("me/certified").network

The file is that of `save_model`: reading it runs no code of its author's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import ModelHubMixin, hf_hub_download
from torch import Tensor, nn

from onelip.checkpoints import load_model, save_model

_FILE = "model.safetensors"


class HubNetwork(
    nn.Module,
    ModelHubMixin,
    library_name="onelip",
    tags=["certified-robustness", "1-lipschitz"],
):
    """A network of `onelip.models` that can be saved to and loaded from the Hub; it computes what the network does."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Scores of images."""
        return self.network(x)

    def _save_pretrained(self, save_directory: Path) -> None:
        save_model(self.network, save_directory / _FILE)

    @classmethod
    def _from_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, *, model_id: str, revision: str | None = None, **options: Any
    ) -> HubNetwork:
        """The network of a folder, or of a repository on the Hub."""
        folder = Path(model_id)
        if folder.is_dir():
            return cls(load_model(folder / _FILE))
        names = ("cache_dir", "force_download", "local_files_only", "token")
        passed = {name: options[name] for name in names if name in options}
        return cls(load_model(hf_hub_download(model_id, _FILE, revision=revision, **passed)))
