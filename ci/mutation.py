"""What the drivers of known bugs share: edits of the source, made in a copy, each behind a switch.

A test that can not fail proves nothing. A mutant is a bug described as edits of the code:

    [[mutant]]
    name = "stale-handle-honoured"
    bug = "A handle of an earlier generation reads the block's new owner."
    file = "src/pool/lease.rs"
    find = "self.generation == handle.generation"
    replace = "(MUTANT_ON || self.generation == handle.generation)"

One that needs several edits has [[mutant.edit]] tables of file, find and replace instead. `find` must match
exactly once in the file as it is in the repository. `MUTANT_ON` becomes a boolean expression that is true
in a run of this mutant only: all mutants are built together, once. The repository itself contains no switch.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:
    sys.exit(f"the drivers in ci/ need Python 3.11 or later, this is {sys.version.split()[0]}")

ROOT = Path(__file__).resolve().parent.parent
VARIABLE = "SPRINGTIDE_MUTANT"
SWITCH = "MUTANT_ON"
EDIT_KEYS = {"file", "find", "replace"}


class MutantError(Exception):
    """The table, an edit or the build is wrong; the text says what and where."""


@dataclass(frozen=True)
class Edit:
    file: str
    find: str
    replace: str


# ------------------------------------------------------------------------------------- the table


def load_table(text, origin, known, read_mutant):
    """The table itself, and its mutants as `read_mutant` makes them of an entry and the table."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MutantError(f"{origin}: {error}") from error
    refuse_unknown(table, known | {"mutant"}, origin)
    mutants = [read_mutant(entry, table) for entry in table.get("mutant", [])]
    if not mutants:
        raise MutantError(f"{origin}: expected at least one [[mutant]]")
    names = [mutant.name for mutant in mutants]
    for name in names:
        if names.count(name) > 1:
            raise MutantError(f"{origin}: the name {name} occurs {names.count(name)} times")
    return mutants


def place(entry, origin):
    """How errors name an entry."""
    return f"{origin}: mutant {entry.get('name', '(without a name)')}"


def read_edits(entry, known, where):
    """The edits of an entry, whose other fields are `known`; name and bug are checked too."""
    edits = entry.get("edit", [{key: entry[key] for key in EDIT_KEYS if key in entry}])
    refuse_unknown(entry, known | {"name", "bug"} | ({"edit"} if "edit" in entry else EDIT_KEYS), where)
    for edit in edits:
        refuse_unknown(edit, EDIT_KEYS, where)
        require(edit, EDIT_KEYS, str, where)
    require(entry, {"name", "bug"}, str, where)
    if not re.fullmatch(r"[a-z0-9-]+", entry["name"]):
        raise MutantError(f"{where}: expected a name of lower-case letters, digits and hyphens")
    if not any(re.search(rf"\b{SWITCH}\b", edit["replace"]) for edit in edits):
        raise MutantError(f"{where}: no replacement contains {SWITCH}, so it could not be switched off")
    return tuple(Edit(**edit) for edit in edits)


def refuse_unknown(entry, known, where):
    for key in entry:
        if key not in known:
            raise MutantError(f"{where}: unknown field {key}, expected {', '.join(sorted(known))}")


def require(entry, keys, kind, where):
    for key in sorted(keys):
        if not isinstance(entry.get(key), kind) or not entry[key]:
            raise MutantError(f"{where}: expected a field {key}, a {kind.__name__} that is not empty")


def find_mutant(mutants, name):
    for mutant in mutants:
        if mutant.name == name:
            return mutant
    names = ", ".join(mutant.name for mutant in mutants)
    raise MutantError(f"there is no mutant {name}; expected one of {names}")


# ------------------------------------------------------------------------------------- the edits


def mutated_files(mutants, read):
    """The new text of every file that a mutant edits, by file name."""
    by_file = {}
    for mutant in mutants:
        for edit in mutant.edits:
            by_file.setdefault(edit.file, []).append((mutant.name, edit))
    return {file: mutate(file, read(file), edits) for file, edits in by_file.items()}


def mutate(file, text, edits):
    """`text` with all `edits`, a list of (mutant's name, edit), each found in the text as it was."""
    spans = sorted(locate(file, text, name, edit) for name, edit in edits)
    pieces, position, previous = [], 0, None
    for start, end, name, replacement in spans:
        if start < position:
            raise MutantError(f"{file}: the edits of {previous} and {name} overlap")
        pieces += [text[position:start], replacement]
        position, previous = end, name
    return "".join(pieces) + text[position:]


def locate(file, text, name, edit):
    """Where the edit goes and what goes there."""
    count = text.count(edit.find)
    if count != 1:
        first = edit.find.strip().splitlines()[0]
        raise MutantError(f"{file}: mutant {name}: expected one match of {first!r}…, found {count}")
    start = text.index(edit.find)
    return start, start + len(edit.find), name, re.sub(rf"\b{SWITCH}\b", switch(name), edit.replace)


def switch(name):
    """A Rust expression, fit for any place in any crate, that is true in a run of this mutant."""
    return (
        "(|| { static ON: ::std::sync::LazyLock<bool> = ::std::sync::LazyLock::new(|| "
        f'::std::env::var_os("{VARIABLE}").is_some_and(|name| name == "{name}")); *ON }})()'
    )


# ------------------------------------------------------------------------------------- the copy


def target_directory():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


def renamed(manifest):
    """The manifest with a version of its own: to cargo, crates that differ in their place only are the
    same, and the two builds would overwrite each other."""
    manifest, count = re.subn(r'(?m)^version = "([^"+]+)"$', r'version = "\1+mutants"', manifest)
    if count != 1:
        raise MutantError(f"Cargo.toml: expected one line with the workspace's version, found {count}")
    return manifest


def copy_workspace(tree, changed):
    """Makes `tree` the workspace with `changed` texts. Files that are right already keep their time."""
    wanted = {file: (ROOT / file).read_bytes() for file in workspace_files()}
    wanted |= {file: text.encode() for file, text in changed.items()}
    for file, content in wanted.items():
        copy = tree / file
        if not copy.is_file() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
    for copy in list(tree.rglob("*")):
        if copy.is_file() and str(copy.relative_to(tree)) not in wanted:
            copy.unlink()


def workspace_files():
    """Every file of the repository that git does not ignore, or all of them where git is not there."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        found = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout
        names = [os.fsdecode(name) for name in found.split(b"\0") if name]
    except (OSError, subprocess.CalledProcessError):
        skipped = (".git", "target", "__pycache__")
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
        names = [name for name in names if not any(part in skipped for part in Path(name).parts)]
    return [name for name in names if (ROOT / name).is_file()]


def rust_flags():
    """The flags of the repository's own build: other flags would build every dependency again."""
    if "RUSTFLAGS" in os.environ:
        return os.environ["RUSTFLAGS"]
    configuration = tomllib.loads((ROOT / ".cargo/config.toml").read_text())
    return " ".join(configuration["build"]["rustflags"])
