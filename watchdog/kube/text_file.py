"""Files that others write: read without waiting and up to a size, and as UTF-8 whatever encoding they are in."""

import codecs
import errno
import os
import stat
from pathlib import Path
from typing import Final

# The longer marks first: that of UTF-16 is the beginning of that of UTF-32.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def read_file(path: Path, longest: int) -> bytes:
    """The content of a regular file of at most `longest` bytes; OSError, or ValueError if it is another kind or longer.

    A pipe would never end, and opening one would wait for a writer.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise ValueError("it is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(longest + 1)
    finally:
        os.close(descriptor)
    if len(data) > longest:
        raise ValueError(f"it is larger than {longest // 1024} KiB")
    return data


def as_utf8(data: bytes, *, is_cut: bool = False) -> bytes:
    """The same text as UTF-8 without a byte order mark; ValueError if it is not in the encoding that its mark names.

    Windows PowerShell's `>` writes UTF-16 with a mark, and other programs of Windows UTF-8 with one. Text without a
    mark is returned as it is, unless it is UTF-16: no format that is read here has NUL bytes in its first characters.
    `is_cut`: it may end within a character, and what can't be decoded is replaced.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return data[len(mark) :].decode(encoding, "replace" if is_cut else "strict").encode()
            except UnicodeDecodeError as error:
                name = encoding.removesuffix("-le").removesuffix("-be").upper()
                raise ValueError(f"its byte order mark says {name}, but it is not; write it as UTF-8") from error
    if b"\0" in data[:4] and not is_cut:
        raise ValueError("it has NUL bytes, as UTF-16 without a byte order mark does; write it as UTF-8")
    return data
