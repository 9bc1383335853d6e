"""A limit on lines of the log that say the same.

A few lines of each kind pass in a while, then only their number is told, and counted: by the one limiter of the
process, which the extension module has. The kind of a line is its message without what is filled in. What comes
from outside stays on its line.
"""

import logging

from springtide._native import admit, shown

# The most characters of a text that is filled in.
TEXT_MAX = 4096
# The same of a name from outside.
NAME_MAX = 96


class Quiet(logging.Filter):
    """Limits warnings and errors of the logger that it is added to."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(plain(value, TEXT_MAX) if isinstance(value, str) else value for value in record.args)
        if record.levelno < logging.WARNING:
            return True
        more = admit(str(record.msg))
        if more:
            record.msg = f"{record.msg} ({more} more suppressed)"
        return more is not None


def name(text: str) -> str:
    """A name from outside, such as an identifier, fit for a line of the log."""
    return plain(text, NAME_MAX)


def plain(text: str, characters: int) -> str:
    # Names may have surrogates, which are no characters.
    return shown(text.encode("utf-8", "backslashreplace").decode(), characters)
