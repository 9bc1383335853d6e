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
//! | `dead` | files that nothing needs |
//! | `text` | checks of documents, recipes and words |
//! | `messages` | the page that explains messages, against the code that prints them |

mod code;
mod dead;
mod messages;
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

/// Where memory is touched by address or C is called: these files, and no others.
const UNSAFE_ALLOWED: [&str; 23] = [
    "fake_store/dropin/src/abi.rs",
    "fake_store/dropin/src/memory.rs",
    "fake_store/dropin/tests/drop_in.rs",
    "mooncake-sys/src/api.rs",
    "mooncake-sys/src/buffer.rs",
    "mooncake-sys/src/calls.rs",
    "mooncake-sys/src/client.rs",
    "mooncake-sys/src/library.rs",
    "mooncake-sys/tests/handle.rs",
    "mooncake-sys/tests/echo.rs",
    "mooncake-sys/tests/load.rs",
    "planted/src/main.rs",
    "python/src/tensor.rs",
    "src/backend/mooncake/vouch.rs",
    "src/pool/region.rs",
    "src/runtime/cuda/copies.rs",
    "src/runtime/cuda/driver.rs",
    "src/runtime/cuda/libcuda.rs",
    "src/runtime/cuda/locked.rs",
    "src/runtime/cuda/tensor.rs",
    "src/runtime/cuda/workbench.rs",
    "testing/src/cuda/mod.rs",
    "testing/src/cuda/planted.rs",
];

/// Whose messages a user may meet, and the page that says what to do about each.
const PAGE: &str = "docs/troubleshooting.md";
const SPEAKING: [&str; 5] =
    ["src/", "cli/src/", "mooncake-sys/src/", "python/src/", "python/springtide/"];

/// What no user sees: reasons that are counted by a name, and what an assertion says of a broken pool.
const UNHEARD: [&str; 6] = [
    "src/connector/object.rs",
    "src/env/clock.rs",
    "src/pool/buddy/",
    "src/pool/poison.rs",
    "src/pool/state.rs",
    "src/pool/verify.rs",
];

/// Lints that stand for checks which would otherwise be made here.
const LINTS: [&str; 4] = [
    "unsafe_code = \"deny\"",
    "missing_docs = \"deny\"",
    "unreachable_pub = \"deny\"",
    "undocumented_unsafe_blocks = \"deny\"",
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
    report(code::unsafe_code(repository.rust(&[""]), &UNSAFE_ALLOWED));
}

#[test]
fn unsafe_code_says_why_it_is_sound() {
    report(Repository::read().rust(&[""]).flat_map(code::unexplained_unsafe));
}

/// Public items without documentation and unsafe blocks without a reason are found by lints, in every crate.
#[test]
fn every_crate_has_the_lints() {
    let repository = Repository::read();
    let workspace = repository.get("Cargo.toml").expect("the workspace has a manifest");
    let off = LINTS.iter().filter(|lint| !workspace.text.lines().any(|line| line == **lint));
    report(off.map(|lint| format!("Cargo.toml: expected the line {lint}")));
    let crates = repository.all().filter(|source| source.path.ends_with("Cargo.toml"));
    let without = crates.filter(|source| !source.text.contains("[lints]\nworkspace = true\n"));
    report(without.map(|source| format!("{}: does not take the workspace's lints", source.path)));
}

#[test]
fn every_module_belongs_to_a_crate() {
    let repository = Repository::read();
    report(dead::unreached_modules(repository.rust(&[""])));
}

#[test]
fn every_script_is_called() {
    report(dead::uncalled_scripts(Repository::read().all()));
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
    report(others().flat_map(text::machine_paths));
    report(others().flat_map(code::unfinished));
}

#[test]
fn recipes_are_documented_and_there() {
    let repository = Repository::read();
    let justfile = repository.get("justfile").expect("the recipes are in the justfile");
    report(text::undocumented_recipes(justfile));
    let documents = repository.all().filter(|source| source.path.ends_with(".md"));
    report(documents.flat_map(|source| text::unknown_recipes(source, justfile)));
}

#[test]
fn links_resolve() {
    let repository = Repository::read();
    let documents = repository.all().filter(|source| source.path.ends_with(".md"));
    report(documents.flat_map(|source| {
        text::broken_links(source, |path| repository.has(path), |path| repository.get(path))
    }));
}

#[test]
fn excerpts_are_what_they_are_from() {
    let repository = Repository::read();
    let documents = repository.all().filter(|source| source.path.ends_with(".md"));
    report(
        documents.flat_map(|source| text::changed_excerpts(source, |path| repository.get(path))),
    );
}

#[test]
fn messages_are_explained() {
    let repository = Repository::read();
    let page = repository.get(PAGE).expect("the page is there");
    let speaking = || repository.all().filter(|source| source.is_in(&SPEAKING));
    report(messages::stale(page, speaking()));
    report(messages::missing(page, speaking().filter(|source| !source.is_in(&UNHEARD))));
}

/// Fails with all complaints, a line each.
fn report(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<String> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}
