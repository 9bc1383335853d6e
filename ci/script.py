"""What the Python scripts of ci/ share: how one ends, and the programs that it runs side by side.

A script ends with `script.run("ci/NAME", main)`, where `main` takes the arguments and gives the exit code. Then

- Ctrl-C ends it with exit code 130, after the programs that `call` has started;
- a reader of its output that has seen enough (`| head -1`) is no error: the exit code still tells the verdict;
- output that cannot be written, a program that cannot be run and a file that cannot be read are one line on
  stderr and exit code 2, since no verdict was reached.
"""

import argparse
import concurrent.futures
import os
import shlex
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

INTERRUPTED, NO_VERDICT = 130, 2
# How often a thread that waits looks whether it is to end.
LOOK_S = 0.2


class Stopped(Exception):
    """The script is ending, so no program starts any more."""


class OutputError(Exception):
    """Output cannot be written."""


def run(name, main):
    """Ends the process with what `main` says of the arguments."""
    sys.stdout, sys.stderr = Output(sys.stdout), Output(sys.stderr)
    sys.exit(exit_code(name, main))


def exit_code(name, main):
    try:
        try:
            code = main(sys.argv[1:])
        except SystemExit as asked:
            code = asked.code
            if isinstance(code, str):
                print(code, file=sys.stderr)
                code = 1
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        children.end()
        return INTERRUPTED
    except (OSError, OutputError, subprocess.SubprocessError) as error:
        children.end()
        say(f"{name}: error: {explain(error)}")
        return NO_VERDICT


def explain(error):
    """One line, and below it what a program said before it failed."""
    if isinstance(error, subprocess.CalledProcessError):
        said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr
        return "\n".join([f"`{words(error.cmd)}` ended with exit code {error.returncode}", *(said or "").splitlines()])
    if isinstance(error, subprocess.TimeoutExpired):
        return f"`{words(error.cmd)}` did not end within {error.timeout:.0f} s"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def words(command):
    return command if isinstance(command, str) else shlex.join(map(str, command))


def say(text):
    try:
        print(text, file=sys.stderr, flush=True)
    except OutputError:
        pass


# ------------------------------------------------------------------------------------- output


class Output:
    """A stream whose reader may have seen enough, and whose other errors have a name of their own."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text):
        return self.guarded(self.stream.write, text)

    def flush(self):
        self.guarded(self.stream.flush)

    def guarded(self, action, *arguments):
        try:
            return action(*arguments)
        except BrokenPipeError:
            self.drop()
        except OSError as error:
            self.drop()
            raise OutputError(f"cannot print: {error.strerror}") from None

    def drop(self):
        """What is still to come goes nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.stream.fileno())
        os.close(nowhere)


# ------------------------------------------------------------------------------------- programs


class Children:
    """The programs that `call` has started and that have not ended."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = set()
        self.ending = False

    def start(self, command, settings):
        with self.lock:
            if self.ending:
                raise Stopped
            child = subprocess.Popen(command, **settings)
            self.running.add(child)
            return child

    def forget(self, child):
        with self.lock:
            self.running.discard(child)
            if self.ending:
                raise Stopped

    def end(self):
        """Ends all of them, each by its pid; whoever waits for one then is told `Stopped`."""
        with self.lock:
            self.ending = True
            for child in self.running:
                child.kill()


children = Children()


def call(command, timeout=None, **settings):
    """As `subprocess.run`, from any thread; the program ends with the script, however that ends."""
    if threading.current_thread() is not threading.main_thread():
        return started(command, timeout, settings)
    # Ctrl-C interrupts the main thread wherever it is: while it starts a program, nobody would know of that.
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(started, command, timeout, settings)
        try:
            return result(future)
        except KeyboardInterrupt:
            children.end()
            raise


def started(command, timeout, settings):
    with children.start(command, settings) as child:
        try:
            output, errors = child.communicate(timeout=timeout)
        except BaseException:
            child.kill()
            raise
        finally:
            children.forget(child)
    return subprocess.CompletedProcess(command, child.returncode, output, errors)


@contextmanager
def side_by_side():
    """Threads, one for each core, that wait for a `call` each. Whatever ends the block early ends the programs."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.end()
            raise


def each(pool, function, items):
    """What the function gives for each item, in their order, from the threads of the pool."""
    for future in [pool.submit(function, item) for item in items]:
        yield result(future)


def result(future):
    """Its result. A wait without end would miss a Ctrl-C that comes just before it."""
    while not future.done():
        concurrent.futures.wait([future], timeout=LOOK_S)
    return future.result()


# ------------------------------------------------------------------------------------- arguments


def number(kind, least, most):
    """For argparse: reads a number within bounds, which no other than a number is."""

    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"expected a number from {least:.4g} to {most}, got {text!r}")
        return value

    return read
