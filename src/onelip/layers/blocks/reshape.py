"""Isometries and projections that change shapes only: all 1-Lipschitz by construction.

Appending zeros keeps every distance, dropping entries cannot increase one, and moving entries keeps them.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from onelip.errors import InvalidInputError
from onelip.layers.memory_format import in_format_of
from onelip.proofs.bounded import BoundedModule, moves_entries


class ZeroChannelPad(BoundedModule):
    """Append channels of zeros until there are `channels` of them.

    `dim` is the channel dimension: 1 for images (batch, channels, ...), -1 for features.

    Examples:
        >>> import torch
        >>> from onelip.layers import ZeroChannelPad
        >>> ZeroChannelPad(8)(torch.rand(1, 3, 4, 4)).shape
        torch.Size([1, 8, 4, 4])
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

    bound = moves_entries
    repr_format = "{0.channels}, dim={0.dim}"


class FirstChannels(BoundedModule):
    """Keep the first `channels` channels of dimension `dim` and drop the rest.

    Examples:
        >>> import torch
        >>> from onelip.layers import FirstChannels
        >>> FirstChannels(2)(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[1., 2.]])
    """

    def __init__(self, channels: int, dim: int = 1) -> None:
        super().__init__()
        self.channels, self.dim = channels, dim

    def forward(self, x: Tensor) -> Tensor:
        """The first channels; fewer than that is an error."""
        if x.shape[self.dim] < self.channels:
            raise InvalidInputError(f"FirstChannels({self.channels}) got an input of {x.shape[self.dim]} channels")
        return in_format_of(x, x.narrow(self.dim, 0, self.channels))

    bound = moves_entries
    repr_format = "{0.channels}, dim={0.dim}"


class ZeroSpatialPad(BoundedModule):
    """Append rows and columns of zeros until height and width are multiples of `multiple`.

    Examples:
        >>> import torch
        >>> from onelip.layers import ZeroSpatialPad
        >>> ZeroSpatialPad(4)(torch.rand(1, 3, 5, 7)).shape
        torch.Size([1, 3, 8, 8])
    """

    def __init__(self, multiple: int) -> None:
        super().__init__()
        self.multiple = multiple

    def forward(self, x: Tensor) -> Tensor:
        """Pad at the bottom and at the right."""
        return F.pad(x, (0, -x.shape[-1] % self.multiple, 0, -x.shape[-2] % self.multiple))

    bound = moves_entries
    repr_format = "{0.multiple}"
