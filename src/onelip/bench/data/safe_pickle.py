"""Read the official CIFAR pickles without being able to build anything but plain values and byte arrays.

A pickle is a program. The official files need three names of NumPy to rebuild their one array; this reader
answers those names with the inert stand-ins below and refuses every other name, so a pickle can neither import
nor call anything, nor reach NumPy's own C code for restoring arrays.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelip.errors import InvalidInputError


class _Dtype:
    """Stand-in for `numpy.dtype`: keeps the type string, ignores the byte-order state."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else str(code)

    def __setstate__(self, state: Any) -> None:
        """One byte has no byte order."""


class _Array:
    """Stand-in for `numpy.ndarray`: keeps the state that the pickle gives, converted and checked at the end."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def to_numpy(self) -> NDArray[np.uint8]:
        """The uint8 array; any other kind of array is an error."""
        try:
            _, shape, dtype, fortran, raw = self.state
            if dtype.code not in ("u1", "|u1", "uint8") or fortran:
                raise TypeError(f"array of type {dtype.code}, fortran order {fortran}")
            return np.frombuffer(raw, dtype=np.uint8).reshape(shape)
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(f"the pickle holds an array that is not plain uint8 ({error})") from error


def _reconstruct(*_: Any) -> _Array:
    return _Array()


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,  # the same, written by NumPy 2
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _STAND_INS[module_name, global_name]
        except KeyError:
            raise InvalidInputError(
                f"the pickle asks for {module_name}.{global_name}, which no official CIFAR file does; it was not run"
            ) from None


def load_cifar_pickle(content: bytes) -> dict[str, Any]:
    """The dictionary in an official CIFAR pickle: keys as text, arrays as uint8, the rest as it is."""
    try:
        # Written by Python 2: its strings are bytes for us, the image data among them.
        tree = _Reader(io.BytesIO(content), encoding="bytes").load()
    except InvalidInputError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way at all
        raise InvalidInputError(f"damaged pickle ({type(error).__name__}: {error})") from error
    if not isinstance(tree, dict):
        raise InvalidInputError(f"the pickle holds a {type(tree).__name__}, not the dictionary of a CIFAR file")
    keys = [key.decode("latin1") if isinstance(key, bytes) else str(key) for key in tree]
    values = [value.to_numpy() if isinstance(value, _Array) else value for value in tree.values()]
    return dict(zip(keys, values, strict=True))
