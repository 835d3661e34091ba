"""Isometries and projections that change shapes only: all 1-Lipschitz by construction.

Appending zeros keeps every distance, dropping entries cannot increase one, and moving entries keeps them.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.bounded import BoundedModule, check_keeps_samples_apart
from onelip.linalg.layer_bound import LayerBound, exact_bound


class ZeroChannelPad(BoundedModule):
    """Append channels of zeros until there are `channels` of them.

    `dim` is the channel dimension: 1 for images (batch, channels, ...), -1 for features.
    """

    def __init__(self, channels: int, dim: int = 1) -> None:
        super().__init__()
        self.channels, self.dim = channels, dim

    def forward(self, x: Tensor) -> Tensor:
        """Map c channels to `channels` of them; more than that is an error, never a silent cut."""
        missing = self.channels - x.shape[self.dim]
        if missing < 0:
            raise InvalidInputError(f"ZeroChannelPad({self.channels}) got an input of {x.shape[self.dim]} channels")
        trailing = x.dim() - 1 - self.dim if self.dim >= 0 else -1 - self.dim
        return F.pad(x, (0, 0) * trailing + (0, missing))

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Zeros are appended: constant 1, and nothing is rounded."""
        check_keeps_samples_apart(self, self.dim, input_shape)
        return exact_bound()

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.channels}, dim={self.dim}"


class FirstChannels(BoundedModule):
    """Keep the first `channels` channels of dimension `dim` and drop the rest."""

    def __init__(self, channels: int, dim: int = 1) -> None:
        super().__init__()
        self.channels, self.dim = channels, dim

    def forward(self, x: Tensor) -> Tensor:
        """A view of the first channels; fewer than that is an error."""
        if x.shape[self.dim] < self.channels:
            raise InvalidInputError(f"FirstChannels({self.channels}) got an input of {x.shape[self.dim]} channels")
        return x.narrow(self.dim, 0, self.channels)

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Entries are dropped: constant 1, and nothing is rounded."""
        check_keeps_samples_apart(self, self.dim, input_shape)
        return exact_bound()

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.channels}, dim={self.dim}"


class ZeroSpatialPad(BoundedModule):
    """Append rows and columns of zeros until height and width are multiples of `multiple`."""

    def __init__(self, multiple: int) -> None:
        super().__init__()
        self.multiple = multiple

    def forward(self, x: Tensor) -> Tensor:
        """Pad at the bottom and at the right."""
        return F.pad(x, (0, -x.shape[-1] % self.multiple, 0, -x.shape[-2] % self.multiple))

    def bound(self, input_shape: tuple[int, ...]) -> LayerBound:
        """Zeros are appended: constant 1, and nothing is rounded."""
        return exact_bound()

    def extra_repr(self) -> str:
        """The argument."""
        return f"{self.multiple}"
