"""DLPack: memory that array libraries share without a copy (https://dmlc.github.io/dlpack)."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, PYFUNCTYPE, c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from .errors import UnsupportedError

#: Kinds of devices.
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13

#: The version of versioned capsules. Later minor versions are read too.
VERSION = (1, 0)

_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_UINT8 = (1, 8, 1)
_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_kind", c_int32),
        ("device", c_int32),
        ("dimensions", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("offset", c_uint64),
    ]


class _Managed(ctypes.Structure):
    """What a capsule points to. It lives in `_EXPORTS`, and refers to the memory by `keep`."""

    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]
    keep: object


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]
    keep: object


#: What others have, by the address of the structure.
_EXPORTS: dict[int, _Managed | _ManagedVersioned] = {}

#: What others call when they are done: a function of C throughout, in which no interrupt is raised.
_DELETER = CFUNCTYPE(None, c_size_t)(_EXPORTS.pop)

_api = ctypes.pythonapi
_new = PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", _api))
_is_valid = PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _api))
_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _api))
_set_name = PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_SetName", _api))
_set_destructor = PYFUNCTYPE(ctypes.c_int, c_void_p, c_void_p)(("PyCapsule_SetDestructor", _api))

#: The names that taken capsules have, which must stay.
_USED = {_PLAIN: c_char_p(b"used_dltensor"), _VERSIONED: c_char_p(b"used_dltensor_versioned")}
_NAMES = {_PLAIN: c_char_p(_PLAIN), _VERSIONED: c_char_p(_VERSIONED)}


def _destroy(capsule: int) -> None:
    """A capsule that nobody took goes with what it has."""
    for name in _NAMES:
        if _is_valid(capsule, name):
            _EXPORTS.pop(_pointer(capsule, name), None)


_DESTRUCTOR = PYFUNCTYPE(None, c_void_p)(_destroy)


def export(address: int, nbytes: int, device: tuple[int, int], keep: object, versioned: bool) -> tuple[Any, Any]:
    """A capsule of bytes, and the structure in it, which refers to `keep` as long as anybody has the memory."""
    managed: Any = _ManagedVersioned() if versioned else _Managed()
    name = _VERSIONED if versioned else _PLAIN
    if versioned:
        managed.major, managed.minor = VERSION
    # Sizes and steps lie behind one another.
    managed.numbers = (c_int64 * 2)(nbytes, 1)
    shape = ctypes.addressof(managed.numbers)
    tensor = managed.tensor
    tensor.data, (tensor.device_kind, tensor.device), tensor.dimensions = address, device, 1
    tensor.code, tensor.bits, tensor.lanes = _UINT8
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(c_int64))
    tensor.strides = ctypes.cast(shape + ctypes.sizeof(c_int64), ctypes.POINTER(c_int64))
    managed.deleter = ctypes.cast(_DELETER, c_void_p)
    managed.keep = keep
    place = ctypes.addressof(managed)
    _EXPORTS[place] = managed
    try:
        return _new(place, _NAMES[name], ctypes.cast(_DESTRUCTOR, c_void_p)), managed
    except BaseException:
        _EXPORTS.pop(place, None)
        raise


class Imported:
    """Memory of another library, until this object ends."""

    def __init__(self, capsule: object) -> None:
        self._deleter: Any = None
        place = id(capsule)
        name = next((name for name in _NAMES if _is_valid(place, name)), None)
        if name is None:
            raise UnsupportedError("__dlpack__ returned no capsule of DLPack, or one that was taken already")
        self._pointer = _pointer(place, name)
        kind: Any = _ManagedVersioned if name == _VERSIONED else _Managed
        managed = kind.from_address(self._pointer)
        if name == _VERSIONED and managed.major != VERSION[0]:
            raise UnsupportedError(f"version {managed.major}.{managed.minor} of DLPack is unknown; 1.x is supported")
        tensor = managed.tensor
        shape = [tensor.shape[axis] for axis in range(tensor.dimensions)]
        if tensor.strides and not _is_contiguous(shape, [tensor.strides[axis] for axis in range(tensor.dimensions)]):
            raise UnsupportedError("the array is not contiguous in C's order; make a contiguous copy of it")
        items = 1
        for length in shape:
            items *= length
        self.nbytes: int = (items * tensor.bits * tensor.lanes + 7) // 8
        self.address: int = (tensor.data or 0) + tensor.offset
        self.device = (tensor.device_kind, tensor.device)
        self.is_read_only = name == _VERSIONED and bool(managed.flags & _READ_ONLY)
        # From here on it is this object's.
        self._deleter = managed.deleter
        _set_name(place, _USED[name])
        _set_destructor(place, None)

    def __del__(self) -> None:
        deleter, self._deleter = self._deleter, None
        if deleter:
            PYFUNCTYPE(None, c_void_p)(deleter)(self._pointer)


def _is_contiguous(shape: list[int], strides: list[int]) -> bool:
    step = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != step:
            return False
        step *= length
    return True
