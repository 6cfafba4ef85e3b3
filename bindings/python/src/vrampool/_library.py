"""The C ABI. It is opened by ctypes when it is first called: programs that only import the package, or allocate and free, wait for no
import of ctypes.
"""

from __future__ import annotations

from ._native_file import PATH as PATH

#: Set by type checkers, which so import `typing`; it takes longer than the whole package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._abi import Library


class _Deferred:
    """The C ABI, opened by the first use."""

    def __getattr__(self, name: str) -> Any:
        # Lines of the library go to Python's loggers from its first call on.
        from . import _abi
        from . import _logging as _logging

        # It is the opened library from now on: when the interpreter ends, nothing can be imported any more. In this order: after an
        # interrupt between the two, the next use of a method comes here again.
        self.__dict__ = vars(_abi.LIBRARY)
        self.__class__ = _abi.Library  # type: ignore[assignment]
        return getattr(self, name)


LIBRARY: Library = _Deferred()  # type: ignore[assignment]
