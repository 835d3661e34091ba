"""The polynomial that stands for the exponential in training: close to it, and a contraction."""

from __future__ import annotations

from fractions import Fraction

import torch

from onelip.linalg import short_exponential
from onelip.linalg.short_exponential import ERROR, first_rows


def test_distance_to_the_exponential_is_the_declared_one() -> None:
    angles = torch.linspace(-1, 1, 4001, dtype=torch.float64)
    values = short_exponential.short_exponential(torch.complex(torch.zeros_like(angles), angles)[:, None, None])
    distance = (values[:, 0, 0] - torch.polar(torch.ones_like(angles), angles)).abs().max()
    assert 0.97 * ERROR <= distance <= ERROR


def test_modulus_is_at_most_one() -> None:
    """|p(i t)|^2 - 1 = s q(s) for s = t^2: q is negative on intervals that cover (0, 2.9], in exact arithmetic."""
    a, b, c, d = map(Fraction, (short_exponential.A, short_exponential.B, short_exponential.C, short_exponential.D))
    # p(i t) = 1 - a s + b s^2 + i t (d - c s)
    quotient = [d * d - 2 * a, a * a + 2 * b - 2 * c * d, c * c - 2 * a * b, b * b]
    step = Fraction(841, 100) / 4096
    for index in range(4096):
        low, high = index * step, (index + 1) * step
        assert sum(q * (high if q > 0 else low) ** power for power, q in enumerate(quotient)) < 0


def test_first_rows_are_those_of_the_whole() -> None:
    torch.manual_seed(0)
    weight = torch.randn(2, 9, 9, dtype=torch.float64)
    skew = ((weight - weight.mT) / 20).requires_grad_()
    torch.testing.assert_close(first_rows(skew, 4), short_exponential.short_exponential(skew)[..., :4, :])
    assert torch.autograd.gradcheck(lambda matrix: first_rows(matrix, 4), skew)
