"""Methods after the comparison paper, beyond the contract: BRO, Cholesky, spectral normalisation, AOL with steps."""

from __future__ import annotations

from dataclasses import replace

import layer_contract as contract
import pytest
import torch
from jacobians import circular_norm, distance_from_isometry, jacobian, norm_at
from torch import nn

from onelip.errors import InvalidInputError
from onelip.layers import (
    AOLConv2d,
    AOLLinear,
    BROConv2d,
    BROLinear,
    CholeskyConv2d,
    CholeskyLinear,
    MethodInfo,
    SpectralConv2d,
    create_conv,
    get_method,
)
from onelip.layers.block_reflection import BlockReflection
from onelip.layers.methods.bro import reflector
from onelip.linalg.convolution import PaddingMode


class LowRankConv2d(BROConv2d):
    """One column."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, rank=1, **options)  # pyright: ignore[reportArgumentType]


class LowRankLinear(BROLinear):
    """One column."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, rank=1, **options)  # pyright: ignore[reportArgumentType]


class TwoStepConv2d(AOLConv2d):
    """Spectral rescaling."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, steps=2, **options)  # pyright: ignore[reportArgumentType]


class TwoStepLinear(AOLLinear):
    """Spectral rescaling."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, steps=2, **options)  # pyright: ignore[reportArgumentType]


LOW_RANK = replace(get_method("bro"), conv=LowRankConv2d, linear_layer=LowRankLinear)
TWO_STEPS = replace(get_method("aol"), conv=TwoStepConv2d, linear_layer=TwoStepLinear)


@pytest.mark.parametrize("method", [LOW_RANK, TWO_STEPS], ids=["low rank", "two steps"])
@pytest.mark.parametrize("case", ["circular", "zeros", "square", "linear"])
def test_options_pass_the_contract(method: MethodInfo, case: str) -> None:
    contract.check_all(method, case)


class TestLowRank:
    @pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
    @pytest.mark.parametrize("kernel", [1, 3])
    def test_it_is_the_dense_layer(self, kernel: int, padding_mode: PaddingMode) -> None:
        layer = BROConv2d(8, 8, kernel, padding_mode=padding_mode, rank=2, dtype=torch.float64)
        contract.perturb(layer)
        x = torch.randn(2, 8, 5, 6, dtype=torch.float64)
        low = layer(x)
        assert isinstance(layer.transform((5, 6)), BlockReflection)
        dense = BROConv2d(8, 8, kernel, padding_mode=padding_mode, rank=2, dtype=torch.float64)
        dense.load_state_dict(layer.state_dict())
        dense.__class__ = type("Dense", (BROConv2d,), {"is_low_rank": False})
        torch.testing.assert_close(dense(x), low, rtol=0, atol=1e-12)

    def test_it_takes_fewer_operations(self) -> None:
        assert isinstance(BROLinear(16, 16, rank=4).transform(), BlockReflection)
        assert not isinstance(BROLinear(16, 16, rank=5).transform(), BlockReflection)

    @pytest.mark.parametrize("layer", [BROConv2d(8, 8, 3, rank=2), BROConv2d(8, 8, 1, rank=1), BROLinear(8, 8, rank=2)])
    def test_it_compiles_and_exports(self, layer: nn.Module) -> None:
        x = torch.randn(2, 8) if isinstance(layer, BROLinear) else torch.randn(2, 8, 4, 4)
        torch.compiler.reset()
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
        torch.testing.assert_close(compiled, layer(x), rtol=0, atol=1e-5)
        layer.eval()
        torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), layer(x), rtol=0, atol=1e-5)


class TestReflector:
    @pytest.mark.parametrize("gap", [1e-3, 1e-6, 0.0])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
    def test_columns_close_to_each_other(self, gap: float, dtype: torch.dtype) -> None:
        """Solving with a ridge of 1e-7 in float32 gives norms up to 27 for the first gap and 7,000 for the second."""
        columns = torch.randn(5, 8, 4, dtype=dtype)
        columns[..., 1] = columns[..., 0] + gap * torch.randn(5, 8, dtype=dtype)
        values = torch.linalg.svdvals(reflector(columns).to(torch.complex128))
        assert (values - 1).abs().max() < 1e-5

    @pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
    @pytest.mark.parametrize("rank", [1, 3, None, 7])
    def test_orthogonal_in_float32(self, rank: int | None, padding_mode: PaddingMode) -> None:
        layer = BROConv2d(8, 8, 3, rank=rank, padding_mode=padding_mode).eval()
        contract.perturb(layer)
        matrix = jacobian(layer, torch.randn(8, 4, 4)).double()
        if padding_mode == "circular":
            assert distance_from_isometry(matrix) <= 1e-4
        assert torch.linalg.matrix_norm(matrix, 2) <= 1 + 1e-5

    def test_the_map_of_the_definition(self) -> None:
        layer = BROLinear(6, 6, rank=3, bias=False, dtype=torch.float64)
        contract.perturb(layer)
        v = layer.weight.detach()
        expected = torch.eye(6).double() - 2 * v @ torch.linalg.inv(v.mT @ v) @ v.mT
        torch.testing.assert_close(layer(torch.eye(6, dtype=torch.float64)), expected, rtol=0, atol=1e-12)

    def test_channels_that_differ(self) -> None:
        for channels in ((3, 8), (8, 3)):
            layer = BROConv2d(*channels, 3, stride=2).eval()
            assert norm_at(layer, torch.randn(channels[0], 6, 6)) <= 1 + 1e-5

    def test_the_start_reflects_the_first_half(self) -> None:
        layer = BROConv2d(8, 8, 3)
        assert layer.rank == 4
        expected = torch.cat([-torch.ones(4), torch.ones(4)])[:, None, None]
        x = torch.randn(2, 8, 6, 6)
        assert (layer(x) - expected * x).norm() < 0.1 * x.norm()

    @pytest.mark.parametrize("rank", [0, 9, -1, 2.0, True])
    def test_ranks_that_are_none(self, rank: int) -> None:
        with pytest.raises(InvalidInputError, match=r"rank=.* from 1 to 8"):
            BROConv2d(8, 8, 3, rank=rank)
        with pytest.raises(InvalidInputError, match=r"rank=.* from 1 to 8"):
            BROLinear(4, 8, rank=rank)


def test_cholesky_starts_orthogonal() -> None:
    for layer, shape in ((CholeskyConv2d(8, 8, 3), (8, 5, 5)), (CholeskyLinear(8, 8), (8,))):
        values = torch.linalg.svdvals(jacobian(layer.eval(), torch.randn(shape)).double())
        assert values.min() > 0.999
        assert values.max() <= 1 + 1e-6


@pytest.mark.parametrize("padding_mode", ["circular", "zeros"])
def test_spectral_normalisation_is_close_to_norm_one_from_below(padding_mode: PaddingMode) -> None:
    layer = SpectralConv2d(6, 6, 3, padding_mode=padding_mode, init="normal", dtype=torch.float64)
    assert 0.9 < norm_at(layer, torch.randn(6, 6, 6, dtype=torch.float64)) <= 1 + 1e-12
    assert norm_at(layer.eval(), torch.randn(6, 6, 6, dtype=torch.float64)) <= 1 + 1e-12


class TestSteps:
    def test_norms_rise_towards_one(self) -> None:
        torch.manual_seed(0)
        norms = []
        for steps in (1, 2, 3):
            layer = AOLConv2d(16, 16, 3, init="normal", steps=steps, dtype=torch.float64)
            norms.append(float(circular_norm(layer.transform((8, 8)).tensors()["kernel"].detach(), (8, 8))))
        assert norms == pytest.approx([0.5, 0.73, 0.87], abs=0.08)

    def test_one_step_is_the_default(self) -> None:
        layer, same = AOLConv2d(4, 4, 3, init="normal"), AOLConv2d(4, 4, 3, steps=1)
        same.load_state_dict(layer.state_dict())
        x = torch.randn(1, 4, 5, 5)
        assert torch.equal(layer(x), same(x))
        assert "steps" not in repr(layer)
        assert "steps=3" in repr(create_conv("aol", 4, 4, 3, steps=3))

    @pytest.mark.parametrize("steps", [0, -1, 7, 1.0, True])
    def test_steps_that_are_none(self, steps: int) -> None:
        with pytest.raises(InvalidInputError, match=r"steps=.* from 1 to 6"):
            AOLConv2d(4, 4, 3, steps=steps)
        with pytest.raises(InvalidInputError, match=r"steps=.* from 1 to 6"):
            AOLLinear(4, 4, steps=steps)
