//! Checks of Rust code. Each takes a file and gives one complaint a place.

use std::collections::BTreeSet;

use crate::{
    repository::Source,
    rust::{find_words, functions, line_of},
};

/// What would make the pure parts depend on more than their arguments, each with what to use instead.
const HIDDEN_INPUTS: [(&str, &str); 7] = [
    ("HashMap", "its order differs from run to run: use BTreeMap"),
    ("HashSet", "its order differs from run to run: use BTreeSet"),
    ("Instant::now", "take the time as an argument, or use env::Clock"),
    ("SystemTime", "take the time as an argument, or use env::Clock"),
    ("rand::", "take the generator as an argument"),
    ("spawn_blocking", "it freezes simulated time: put the work behind a trait of env"),
    ("tokio::spawn", "it escapes the host's pause and crash: use env::Env::spawn"),
];

/// Lines that a statement may have above the unsafe block in it.
const STATEMENT_LINES_MAX: usize = 8;

/// Macros that stand for code which is not there, or not meant to stay.
const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

/// Complains about a module of more than `max` lines.
pub(crate) fn module_size(source: &Source, max: usize) -> Option<String> {
    let lines = source.lines();
    (lines > max)
        .then(|| format!("{}: {lines} lines, expected at most {max}: split it", source.path))
}

/// Complains about functions of more than `max` lines that are not among `exceptions` (file, function,
/// reason), and about exceptions that nothing needs.
pub(crate) fn function_size(
    sources: &[&Source],
    max: usize,
    exceptions: &[(&str, &str, &str)],
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut needed = BTreeSet::new();
    for source in sources {
        for function in functions(&source.code) {
            let lines = source.code[function.range.clone()].lines().count();
            if lines <= max {
                continue;
            }
            let excepted = exceptions
                .iter()
                .find(|(file, name, _)| (*file, *name) == (&source.path, function.name));
            match excepted {
                Some(exception) => _ = needed.insert(exception),
                None => {
                    let what = format!("fn {} has {lines} lines", function.name);
                    let expected = format!("{what}, expected at most {max}");
                    complaints.push(place(source, function.range.start, &expected));
                }
            }
        }
    }
    let idle = exceptions.iter().filter(|exception| !needed.contains(exception));
    complaints.extend(idle.map(|(file, name, _)| format!("{file}: fn {name} needs no exception")));
    complaints
}

/// Complains about unsafe code in files that are not among `allowed`, and about those that are and have none.
pub(crate) fn unsafe_code<'a>(
    sources: impl Iterator<Item = &'a Source>,
    allowed: &[&str],
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut idle: BTreeSet<&str> = allowed.iter().copied().collect();
    for source in sources {
        let found: Vec<usize> = find_words(&source.code, "unsafe").collect();
        if !allowed.contains(&source.path.as_str()) {
            let text = "unsafe code outside the files that may have it";
            complaints.extend(found.iter().map(|at| place(source, *at, text)));
        } else if !found.is_empty() {
            idle.remove(source.path.as_str());
        }
    }
    complaints
        .extend(idle.iter().map(|file| format!("{file}: has no unsafe code, so it may have none")));
    complaints
}

/// Complains about unsafe blocks and implementations without a `SAFETY:` in the comment above them, or above the
/// statement that they are in.
pub(crate) fn unexplained_unsafe(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let found = find_words(&source.code, "unsafe").filter(|at| {
        let rest = source.code[at + "unsafe".len()..].trim_start();
        let stands_alone = rest.starts_with('{') || rest.starts_with("impl");
        stands_alone && !is_explained(&lines[..line_of(&source.code, *at) - 1])
    });
    found.map(|at| place(source, at, "unsafe without `SAFETY:`")).collect()
}

/// Whether the lines above a place end in a comment with `SAFETY:`, or in the beginning of a statement that
/// follows one.
fn is_explained(above: &[&str]) -> bool {
    let mut lines = above.iter().rev().map(|line| line.trim());
    let is_comment = |line: &str| line.starts_with("//");
    let comment = lines.by_ref().take(STATEMENT_LINES_MAX).find(|line| is_comment(line));
    let rest = lines.take_while(|line| is_comment(line));
    comment.into_iter().chain(rest).any(|line| line.contains("SAFETY:"))
}

/// Complains about hidden inputs.
pub(crate) fn hidden_inputs(source: &Source) -> Vec<String> {
    let found = HIDDEN_INPUTS.iter().flat_map(|(word, advice)| {
        find_words(&source.code, word)
            .map(move |at| place(source, at, &format!("{word}: {advice}")))
    });
    found.collect()
}

/// Complains about a `select!` that does not begin with `biased;`: its order is drawn at random.
pub(crate) fn unbiased_select(source: &Source) -> Vec<String> {
    let unbiased = find_words(&source.code, "select!").filter(|at| {
        let body = source.code[at + "select!".len()..].trim_start();
        !body.starts_with('{') || !body[1..].trim_start().starts_with("biased;")
    });
    unbiased.map(|at| place(source, at, "select! without `biased;`: its order is random")).collect()
}

/// Complains about macros that stand for missing code.
pub(crate) fn unfinished(source: &Source) -> Vec<String> {
    let found = UNFINISHED.iter().flat_map(|word| {
        find_words(&source.code, word).map(move |at| place(source, at, &format!("{word} is left")))
    });
    found.collect()
}

fn place(source: &Source, at: usize, complaint: &str) -> String {
    format!("{}:{}: {complaint}", source.path, line_of(&source.code, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str) -> Source {
        Source::new("src/sample.rs", text)
    }

    #[test]
    fn a_long_module_is_found() {
        assert_eq!(module_size(&sample("a\nb\n"), 2), None);
        let complaint = module_size(&sample("a\nb\nc\n"), 2);
        assert_eq!(
            complaint.as_deref(),
            Some("src/sample.rs: 3 lines, expected at most 2: split it")
        );
    }

    #[test]
    fn a_long_function_is_found_unless_excepted() {
        let source = sample("fn short() {}\n\nfn long() {\n\n}\n");
        let check = |exceptions| function_size(&[&source], 2, exceptions);
        assert_eq!(check(&[]), ["src/sample.rs:3: fn long has 3 lines, expected at most 2"]);
        assert!(check(&[("src/sample.rs", "long", "a table")]).is_empty());
        let stale =
            check(&[("src/sample.rs", "long", "a table"), ("src/sample.rs", "short", "old")]);
        assert_eq!(stale, ["src/sample.rs: fn short needs no exception"]);
    }

    #[test]
    fn unsafe_code_is_found() {
        let source =
            sample("// unsafe\n#![deny(unsafe_code)]\nlet word = \"unsafe\";\nunsafe { f() }\n");
        let check = |allowed| unsafe_code([&source].into_iter(), allowed);
        assert_eq!(check(&[]), ["src/sample.rs:4: unsafe code outside the files that may have it"]);
        assert!(check(&["src/sample.rs"]).is_empty());
        let stale = check(&["src/other.rs", "src/sample.rs"]);
        assert_eq!(stale, ["src/other.rs: has no unsafe code, so it may have none"]);
    }

    #[test]
    fn unsafe_code_without_a_reason_is_found() {
        let text = "// SAFETY: none needed.\nlet x =\n    unsafe { f() };\n\n\n\n\n\n\n// Why not.\nunsafe { f() }\n\
                    unsafe fn f() {}\n/// Text.\nunsafe impl Send for X {}\n// SAFETY: it\n// is.\nunsafe impl Y {}\n";
        let complaints = unexplained_unsafe(&sample(text));
        let found = [11, 14].map(|line| format!("src/sample.rs:{line}: unsafe without `SAFETY:`"));
        assert_eq!(complaints, found);
    }

    #[test]
    fn every_hidden_input_is_found() {
        for (word, _) in HIDDEN_INPUTS {
            let complaints = hidden_inputs(&sample(&format!("// {word}\nlet x = {word}();\n")));
            assert_eq!(complaints.len(), 1, "{word}: {complaints:?}");
            assert!(
                complaints[0].starts_with(&format!("src/sample.rs:2: {word}: ")),
                "{complaints:?}"
            );
        }
        assert!(hidden_inputs(&sample("operand::new(MyHashMap, Instant::nowhere)")).is_empty());
    }

    #[test]
    fn an_unbiased_select_is_found() {
        let good = "tokio::select! {\n    // in this order\n    biased;\n    _ = a => {}\n}\n";
        assert!(unbiased_select(&sample(good)).is_empty());
        let bad = "fn f() {\n    tokio::select! {\n        _ = biased => {}\n    }\n}\n";
        let expected = ["src/sample.rs:2: select! without `biased;`: its order is random"];
        assert_eq!(unbiased_select(&sample(bad)), expected);
    }

    #[test]
    fn every_unfinished_macro_is_found() {
        for word in UNFINISHED {
            let complaints = unfinished(&sample(&format!("// {word}\n{word}(\"{word}\");\n")));
            assert_eq!(complaints, [format!("src/sample.rs:2: {word} is left")]);
        }
    }
}
