"""What can go wrong, by the codes of the C ABI."""


class Error(RuntimeError):
    """Any failure of vrampool. Nothing has changed when it is raised, and every byte is accounted for."""


class InvalidArgumentError(Error, ValueError):
    """An argument is out of range, no text, or names nothing."""


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument of a type that it cannot have, or an unknown option."""


class ArgumentOverflowError(InvalidArgumentError, OverflowError):
    """A number of more than 64 bits."""


class ClosedError(Error):
    """The pool was closed."""


class InvalidPointerError(Error, ValueError):
    """No live block begins at the address: it is foreign memory, freed already, or inside a block."""


class OutOfMemoryError(Error, MemoryError):
    """Neither idle memory nor the device has enough, also after idle memory was released.

    Attributes:
        requested: bytes that were requested.
        free: bytes that the device has free, as its driver reports them.
        held: bytes that the pool has taken from the device.
        limit: the pool's hard cap on `held`, in bytes; `vrampool.UNLIMITED` for none.

    Each is `None` where it is not known.
    """

    requested: int | None = None
    free: int | None = None
    held: int | None = None
    limit: int | None = None


class TooLargeError(OutOfMemoryError):
    """More than the device allocates in one piece."""


class MismatchError(Error, ValueError):
    """A block or a stream of another pool, device or size than the one that was named."""


class CaptureError(Error):
    """It is forbidden while the stream is captured into a graph."""


class AsleepError(Error):
    """The memory is asleep."""


class ConfigurationError(Error, ValueError):
    """An option or an environment variable that cannot be."""


class UnavailableError(Error):
    """There is no such device here."""


class UnsupportedError(Error):
    """The device, the pool's source, or this build cannot do it at all."""


class DeviceError(Error):
    """The device's driver failed."""


class DeviceLostError(DeviceError):
    """The device is lost for good."""


class BusyError(Error):
    """Another call on the same object is active, or the time for this one is over."""


class ForkedError(Error):
    """The process was forked from one that had opened a device: nothing of the parent's is used here. Spawn processes."""


class InternalError(Error):
    """A fault of vrampool's own, caught at the boundary of its library."""


#: By the numbers of the C ABI.
_BY_STATUS: dict[int, type[Error]] = {
    1: InvalidArgumentError,
    2: ClosedError,
    3: InvalidPointerError,
    4: OutOfMemoryError,
    5: TooLargeError,
    6: MismatchError,
    7: CaptureError,
    8: AsleepError,
    9: ConfigurationError,
    10: UnavailableError,
    11: UnsupportedError,
    12: DeviceError,
    13: DeviceLostError,
    14: BusyError,
    15: InternalError,
    16: ForkedError,
}
