"""What has no Lipschitz constant, why, and what to use in its place."""

from __future__ import annotations

from torch import nn

_PRODUCT = "multiplies values that depend on the input, which has no Lipschitz constant"
_INDICES = "it returns indices too, which jump; pool without them"
_CONVERTS = "it converts numbers to another type; keep one type throughout"
_SPECTRUM = "complex numbers are not supported; use a layer of onelip in the frequency domain, such as CayleyConv2d"
_JUMPS = "jumps, so that it has no Lipschitz constant"

_REASONS: dict[str, str] = {
    "normalize": "it divides by the norm of the input, which expands near zero; scale the input by a constant",
    "scaled_dot_product_attention": f"attention {_PRODUCT}; mix positions by a onelip layer",
    "multi_head_attention_forward": f"attention {_PRODUCT}; mix positions by a onelip layer",
    "bilinear": f"a bilinear map {_PRODUCT}",
    "glu": f"a gated unit {_PRODUCT}; use onelip.layers.MaxMin",
    "pow": "a power has no Lipschitz constant on the whole line; use an activation such as onelip.layers.MaxMin",
    "square": "a square has no Lipschitz constant on the whole line; use torch.abs",
    "exp": "the exponential has no Lipschitz constant on the whole line",
    "log": "the logarithm has no Lipschitz constant near zero",
    "sqrt": "the square root has no Lipschitz constant near zero; use torch.linalg.vector_norm or LPPool2d for norms",
    "reciprocal": "a division by the input has no Lipschitz constant",
    "rtruediv": "a division by the input has no Lipschitz constant",
    "where": f"a choice by a condition on values {_JUMPS} in general; use torch.maximum, torch.minimum or clamp",
    "hardshrink": f"it {_JUMPS}; use softshrink",
    "round": f"it {_JUMPS}",
    "floor": f"it {_JUMPS}",
    "ceil": f"it {_JUMPS}",
    "sign": f"it {_JUMPS}; use hardtanh",
    "heaviside": f"it {_JUMPS}; use hardtanh",
    "argmax": f"it {_JUMPS}; certify the scores",
    "embedding": "it needs integers, which have no neighbours",
    "setitem": "it writes into a tensor in place; use torch.cat, F.pad or torch.stack",
    "copy_": "it writes into a tensor in place; use torch.cat, F.pad or torch.stack",
    "randn_like": "it is random",
    "rand_like": "it is random",
    "bernoulli": "it is random",
    "mul": f"it {_PRODUCT}",
    "prod": f"it {_PRODUCT}",
    "cumprod": f"it {_PRODUCT}",
    "max_pool1d_with_indices": _INDICES,
    "max_pool2d_with_indices": _INDICES,
    "max_pool3d_with_indices": _INDICES,
    **dict.fromkeys(("half", "bfloat16", "int", "long", "type"), _CONVERTS),
    **dict.fromkeys(("fft_fft", "fft_rfft", "fft_fft2", "fft_rfft2"), _SPECTRUM),
}
_MODULES = {
    "MultiheadAttention": f"attention {_PRODUCT}; mix positions by a onelip layer",
    "Bilinear": f"a bilinear map {_PRODUCT}",
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "invert", "isnan", "isinf")


def module_refusal(module: nn.Module) -> str | None:
    """Why a module of torch's is refused before it is looked into, if it is."""
    return _MODULES.get(type(module).__name__) if type(module).__module__.startswith("torch.") else None


def refusal(name: str, kind: str) -> str:
    """Why an operation without a bound is refused, and what helps."""
    plain = name.strip("_")
    if plain in _REASONS:
        return _REASONS[plain]
    if plain in _COMPARISONS:
        return f"a comparison of values {_JUMPS}; use torch.maximum, torch.minimum, clamp or relu"
    within = f"{name} in {kind}" if kind and kind != name else name
    return (
        f"{within} has no bound; put it into a module of its own that declares a float `lipschitz_constant` "
        "if you have a proof"
    )
