"""Memory as array libraries exchange it: DLPack, and the interfaces of NumPy and of CUDA libraries."""

from __future__ import annotations

from . import _native
from ._handle import Handle
from ._library import LIBRARY
from .errors import ArgumentTypeError, Error, InvalidArgumentError, InvalidPointerError, UnsupportedError
from .stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Kinds of devices, as DLPack numbers them.
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13

#: The version of DLPack's versioned capsules. Later minor versions are read too.
_VERSION = (1, 0)

_HOST = (CPU, CUDA_HOST)
#: `inspect.BufferFlags.WRITABLE`.
_WRITABLE = 1
_ON_CUDA = (CUDA, CUDA_MANAGED)


class Memory(Handle):
    """Bytes on a device, which NumPy, PyTorch, CuPy, Numba and JAX use without a copy.

    All have `__dlpack__`. Memory of the host has `__array_interface__` and the buffer protocol (from Python 3.12 on) too, memory of CUDA
    has `__cuda_array_interface__`.
    Attributes that do not fit the device, or memory that was freed, raise `AttributeError`.
    """

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """The number of bytes that were requested."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.nbytes

    def __bool__(self) -> bool:
        # No bytes are memory too.
        return True

    def _begin(self) -> int:
        """Where it begins.

        Raises: `InvalidPointerError` when it was freed.
        """
        raise NotImplementedError

    def _kept(self) -> object:
        """An object that keeps the memory: while it exists, nothing frees it.

        Raises: `InvalidPointerError` when it was freed.
        """
        raise NotImplementedError

    def _order(self, stream: int) -> None:
        """Orders work on a consumer's stream behind the work so far."""

    def _for_interface(self, name: str, kinds: tuple[int, ...]) -> int:
        """Where it begins, for an interface that memory of these kinds has.

        Raises: `AttributeError`.
        """
        try:
            address, (kind, _) = self._begin(), self.__dlpack_device__()
        except Error as error:
            raise AttributeError(f"{self!r} has no {name}: {error}") from error
        if kind not in kinds:
            place = "host" if kind in _HOST else "CUDA"
            raise AttributeError(f"{self!r} has no {name}: its address belongs to a {place} device")
        return address

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Bytes of the host, for NumPy. The array keeps this object, and `free` ends the memory nevertheless."""
        address = self._for_interface("__array_interface__", _HOST)
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (address, self._is_read_only()), "version": 3}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Bytes of a CUDA device, for PyTorch, CuPy and Numba, which order their work behind `stream`."""
        address = self._for_interface("__cuda_array_interface__", _ON_CUDA)
        data = (address if self.nbytes else 0, self._is_read_only())
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": data, "version": 3, "stream": self._stream() or 1}

    def _stream(self) -> int:
        return 0

    def _is_read_only(self) -> bool:
        return False

    def __buffer__(self, flags: int) -> memoryview:
        """Bytes of the host, for `memoryview` and for functions that take bytes, from Python 3.12 on.

        Raises: `BufferError` for memory of other devices and for memory that was freed.
        """
        try:
            kept = self._kept()
            address = self._for_interface("buffer", _HOST)
        except (AttributeError, InvalidPointerError) as error:
            raise BufferError(str(error)) from error
        if flags & _WRITABLE and self._is_read_only():
            raise BufferError(f"{self!r} is read-only")
        import ctypes

        bytes: Any = (ctypes.c_ubyte * self.nbytes).from_address(address)
        bytes.keep = kept
        view = memoryview(bytes).cast("B")
        return view.toreadonly() if self._is_read_only() else view

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind of device as DLPack numbers it (1: host, 2: CUDA), and the number of the device."""
        raise NotImplementedError

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of the memory, as bytes.

        Args:
            stream: the stream on which the consumer uses it: on CUDA a handle, 1 or `None` for the default stream, 2 for that of
                the thread, -1 for no order at all; on the host `None`.
            max_version: the newest version of DLPack that the consumer reads.
            dl_device: the device where the consumer wants it, which must be this one.
            copy: `True` is refused: nothing is copied.

        Raises: `BufferError` for what this memory cannot be; `InvalidPointerError` when it was freed.
        """
        kept = self._kept()
        address, device = self._begin(), self.__dlpack_device__()
        if copy:
            raise BufferError("vrampool makes no copies; leave out copy=True")
        if dl_device is not None and tuple(dl_device) != device:
            raise BufferError(
                f"the memory is on the device {device}, not on {tuple(dl_device)}, and vrampool makes no copies"
            )
        versioned = max_version is not None and tuple(max_version) >= _VERSION
        if self._is_read_only() and not versioned:
            raise BufferError("the memory is read-only, which DLPack before 1.0 cannot express")
        if device[0] in _HOST:
            if stream is not None:
                raise InvalidArgumentError(f"stream={stream!r}: memory of the host is used on no stream; use None")
        elif stream is None or stream != -1:
            if stream == 0 and stream is not None:
                raise InvalidArgumentError(
                    "stream=0 is ambiguous in DLPack: use 1 for the default stream, 2 for that of the thread"
                )
            self._order(0 if stream in (None, 1) else Stream.of(stream))
        is_read_only = self._is_read_only()
        return _native.export_dlpack(address, self.nbytes, device, kept, versioned=versioned, read_only=is_read_only)


class View(Memory):
    """Memory of another library, from `from_dlpack`: valid as long as this object, or what was made of it, exists."""

    __slots__ = ("__weakref__", "_imported", "_stream_handle")

    def __init__(self, imported: _native.Imported, stream: int) -> None:
        self._imported = imported
        self._stream_handle = stream

    @property
    def address(self) -> int:
        """The address of the first byte, on the device."""
        return self._imported.address

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self._imported.nbytes

    def _begin(self) -> int:
        return self._imported.address

    def _kept(self) -> object:
        return self._imported

    def _stream(self) -> int:
        return self._stream_handle

    def _is_read_only(self) -> bool:
        return self._imported.is_read_only

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind of device as DLPack numbers it (1: host, 2: CUDA), and the number of the device."""
        return self._imported.device

    def __repr__(self) -> str:
        return f"View({self.nbytes} bytes at {self.address:#x})"


def from_dlpack(array: Any, stream: object = None) -> View:
    """The memory of an array of any library with DLPack (NumPy, PyTorch, CuPy, JAX, a `Block`), without a copy.

    Args:
        array: contiguous, on the host or on a CUDA device.
        stream: on CUDA the stream on which the memory is used next, which waits for the producer's work.

    Raises: `ArgumentTypeError`, a `TypeError`, for an object without `__dlpack__`; `UnsupportedError` for an array that is not
    contiguous, and for other devices.

    >>> with Pool("host", host_capacity="64MiB") as pool:
    ...     block = pool.allocate(1000)
    ...     view = from_dlpack(block)
    ...     assert (view.address, view.nbytes) == (block.address, 1000)
    """
    if not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
        raise ArgumentTypeError(f"{type(array).__name__} has no __dlpack__ and __dlpack_device__")
    device = array.__dlpack_device__()
    try:
        kind, _ = device
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{type(array).__name__}.__dlpack_device__() returns {device!r}, and no pair of numbers") from None
    if kind not in _HOST + _ON_CUDA:
        raise UnsupportedError(f"memory of DLPack's kind of device {kind}: vrampool uses host (1) and CUDA (2) memory")
    handle = Stream.of(stream)
    options: dict[str, Any] = {} if kind in _HOST else {"stream": handle or 1}
    try:
        capsule = array.__dlpack__(max_version=_VERSION, **options)
    except TypeError:
        # Of before DLPack 1.0.
        capsule = array.__dlpack__(**options)
    return View(_native.Imported(capsule), handle)


def device_of(pool: int) -> tuple[str, int]:
    """The backend and the number of a pool's device, also of a closed pool with live blocks."""
    import ctypes

    (name,) = LIBRARY.values("pool_backend", pool, of=(ctypes.c_char_p,))
    (number,) = LIBRARY.values("pool_device", pool, of=(ctypes.c_int,))
    return (name or b"").decode(), number
