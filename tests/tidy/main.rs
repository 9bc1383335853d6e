//! What a reader of the code relies on and no compiler checks: sizes, words, links, recipes.
//!
//! Each check is a pure function from a file's text to complaints, tested in its module on a sample that
//! must be found; here the checks meet the repository. Where a rule needs an exception, it is listed below
//! with its reason, and an exception that nothing needs any more is a complaint too.
//!
//! | module | what it is |
//! |---|---|
//! | `repository` | the files, as text |
//! | `rust` | as much of Rust's syntax as the checks need: comments, words, function bodies |
//! | `code` | checks of Rust code |
//! | `text` | checks of documents, recipes and words |

mod code;
mod repository;
mod rust;
mod text;

use crate::repository::{Repository, Source};

/// Longest module, in lines, and the length from which a module is worth a second look.
const MODULE_LINES_MAX: usize = 500;
const MODULE_LINES_LONG: usize = 350;

/// Longest function, in lines.
const FUNCTION_LINES_MAX: usize = 90;

/// Crates whose modules are read as a book, so that size matters.
const PRODUCTION: [&str; 6] =
    ["src/", "cli/src/", "fake_store/src/", "sim/src/", "mooncake-sys/src/", "python/src/"];

/// The pure parts: what they decide depends on their arguments only.
const PURE: [&str; 2] = ["src/connector/", "src/pool/"];

/// Where memory is touched by address or C is called.
const UNSAFE_ALLOWED: [&str; 6] = [
    "src/pool/region.rs",
    "src/runtime/cuda.rs",
    "src/backend/mooncake/vouch.rs",
    "mooncake-sys/",
    "fake_store/dropin/",
    "python/src/tensor.rs",
];

/// Functions that may be longer: file, function, reason.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

#[test]
fn modules_are_small() {
    let repository = Repository::read();
    let production = repository.rust(&PRODUCTION);
    for source in production.clone().filter(|source| source.lines() > MODULE_LINES_LONG) {
        eprintln!("{}: {} lines, worth a second look", source.path, source.lines());
    }
    report(production.flat_map(|source| code::module_size(source, MODULE_LINES_MAX)));
}

#[test]
fn functions_fit_a_screen() {
    let repository = Repository::read();
    let sources: Vec<&Source> = repository.rust(&[""]).collect();
    report(code::function_size(&sources, FUNCTION_LINES_MAX, LONG_FUNCTIONS));
}

#[test]
fn unsafe_code_stays_where_it_is_allowed() {
    let repository = Repository::read();
    let others = repository.rust(&[""]).filter(|source| !source.is_in(&UNSAFE_ALLOWED));
    report(others.flat_map(code::unsafe_code));
}

#[test]
fn pure_code_has_no_hidden_inputs() {
    report(Repository::read().rust(&PURE).flat_map(code::hidden_inputs));
}

#[test]
fn select_is_biased() {
    report(Repository::read().rust(&["src/"]).flat_map(code::unbiased_select));
}

#[test]
fn nothing_is_left_unfinished() {
    let repository = Repository::read();
    // The words stand in these very checks.
    let others = || repository.all().filter(|source| !source.is_in(&["tests/tidy/"]));
    report(others().flat_map(text::unfinished));
    report(others().flat_map(code::unfinished));
}

#[test]
fn recipes_are_documented() {
    let repository = Repository::read();
    let justfile = repository.get("justfile").expect("the recipes are in the justfile");
    report(text::undocumented_recipes(justfile));
}

#[test]
fn links_resolve() {
    let repository = Repository::read();
    let documents = repository.all().filter(|source| source.path.ends_with(".md"));
    report(documents.flat_map(|source| text::broken_links(source, |path| repository.has(path))));
}

/// Fails with all complaints, a line each.
fn report(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<String> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}
