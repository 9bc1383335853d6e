//! Checks that every file has somebody who needs it. What is not reached is not built, not run and not
//! checked, and nothing says so.

use std::collections::BTreeSet;

use crate::{
    repository::Source,
    rust::{find_words, is_word},
};

/// Complains about Rust files that no crate reaches from one of its roots.
pub(crate) fn unreached_modules<'a>(
    sources: impl Iterator<Item = &'a Source> + Clone,
) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Source> = sources.clone().filter(|source| is_root(&source.path)).collect();
    while let Some(source) = next.pop() {
        if reached.insert(&source.path) {
            let modules = modules_of(source);
            next.extend(sources.clone().filter(|other| modules.contains(&other.path)));
        }
    }
    let unreached = sources.filter(|source| !reached.contains(&source.path));
    unreached.map(|source| format!("{}: no crate reaches this file", source.path)).collect()
}

/// Whether cargo finds a crate's root under this path by itself.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [.., "src", "lib.rs" | "main.rs"] | [.., "src", "bin", _] | [.., "build.rs"] => true,
        [.., "tests" | "benches" | "examples", file] => *file != "mod.rs",
        [.., "tests" | "benches" | "examples", _, "main.rs"] => true,
        _ => false,
    }
}

/// The files that a file's `mod name;` may mean, and those that a `#[path]` names.
fn modules_of(source: &Source) -> BTreeSet<String> {
    let (directory, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let owns_directory = file == "mod.rs" || is_root(&source.path);
    let inside = match file.strip_suffix(".rs") {
        Some(stem) if !owns_directory => format!("{directory}/{stem}"),
        _ => directory.to_owned(),
    };
    let mut files = BTreeSet::new();
    for at in find_words(&source.code, "mod") {
        let rest = source.code[at + "mod".len()..].trim_start();
        let name = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        if rest[name.len()..].trim_start().starts_with(';') {
            files.insert(format!("{inside}/{name}.rs"));
            files.insert(format!("{inside}/{name}/mod.rs"));
        }
    }
    let paths = source.text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \""));
    let paths = paths.filter_map(|rest| rest.split('"').next());
    files.extend(paths.map(|path| super::text::resolve(&source.path, path)));
    files
}

/// Complains about files of `ci/` that no recipe and no other file of it names.
pub(crate) fn uncalled_scripts<'a>(
    sources: impl Iterator<Item = &'a Source> + Clone,
) -> Vec<String> {
    let is_caller = |path: &str| path == "justfile" || path.starts_with("ci/") || path == ".ci/run";
    let callers: Vec<&Source> = sources.clone().filter(|source| is_caller(&source.path)).collect();
    let scripts = sources
        .filter(|source| source.path.starts_with("ci/") && !source.path.starts_with("ci/tests/"));
    let uncalled = scripts.filter(|script| {
        let stem = script.path.trim_start_matches("ci/").trim_end_matches(".py");
        let import = format!("from {stem} import");
        let is_stage =
            |line: &str| line.starts_with("stages=(") && find_words(line, stem).next().is_some();
        !callers.iter().filter(|caller| caller.path != script.path).any(|caller| {
            find_words(&caller.text, &script.path).next().is_some()
                || caller.text.contains(&import)
                || caller.text.lines().any(is_stage)
        })
    });
    uncalled.map(|script| format!("{}: nothing calls this file", script.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| Source::new(path, text)).collect()
    }

    #[test]
    fn a_module_that_no_crate_reaches_is_found() {
        let files = sources(&[
            ("a/src/lib.rs", "mod deep;\n// mod ghost;\nmod inline { }\n"),
            ("a/src/deep/mod.rs", "pub(crate) mod leaf;"),
            ("a/src/deep/leaf.rs", "mod below;"),
            ("a/src/deep/leaf/below.rs", ""),
            ("a/src/ghost.rs", "mod friend;"),
            ("a/src/friend.rs", ""),
            ("a/src/inline.rs", ""),
            ("a/tests/one.rs", "#[path = \"../other/shared.rs\"]\nmod shared;"),
            ("a/other/shared.rs", ""),
            ("a/tests/two/main.rs", "mod part;"),
            ("a/tests/two/part.rs", ""),
            ("a/tests/two/forgotten.rs", ""),
        ]);
        let found =
            ["a/src/friend.rs", "a/src/ghost.rs", "a/src/inline.rs", "a/tests/two/forgotten.rs"];
        let mut complaints = unreached_modules(files.iter());
        complaints.sort();
        assert_eq!(complaints, found.map(|file| format!("{file}: no crate reaches this file")));
    }

    #[test]
    fn a_script_that_nothing_calls_is_found() {
        let files = sources(&[
            ("justfile", "lint:\n    ci/lint\n"),
            ("ci/lint", ". ci/lib.sh\n"),
            ("ci/lib.sh", "# ci/lib.sh, ci/lint-more"),
            ("ci/loom", "# ci/loom\nfrom mutation import place\n"),
            ("ci/all", "# ci/all\nstages=(lint meta)\n"),
            ("ci/meta", ""),
            ("ci/mutation.py", ""),
            ("ci/tests/test_loom.py", ""),
            ("docs/ci.md", "ci/loom"),
        ]);
        let found = ["ci/loom: nothing calls this file", "ci/all: nothing calls this file"];
        assert_eq!(uncalled_scripts(files.iter()), found);
    }
}
