"""`python -m springtide`: the command line, with the store that Python reaches."""

import signal
import sys

from springtide import _native


def main():
    # The work is done outside of the interpreter, which would keep the signal for itself until the end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.main(["springtide", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
