//! The commands that documents show: each is one that the program takes.

use std::{fs, path::Path};

use clap::{Parser, error::ErrorKind};
use springtide_cli::args::Cli;

/// How a document calls the program.
const CALLS: [&str; 3] = ["springtide ", "python -m springtide ", "./ci/just springtide "];

/// Arguments of the program's commands in the blocks of a document, each with its line. What a block shows as
/// output is none.
fn commands(text: &str) -> Vec<(usize, String)> {
    let (mut block, mut found) = (None, Vec::new());
    for (index, line) in text.lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            block = block.is_none().then_some(language);
        } else if block.is_some_and(|language| !language.starts_with("text")) {
            let call = CALLS.iter().find_map(|call| line.strip_prefix(call));
            let arguments = call.map(|rest| rest.split(" #").next().unwrap_or(rest));
            found.extend(arguments.map(|arguments| (index + 1, arguments.to_owned())));
        }
    }
    found
}

/// Why the program would not take these arguments.
fn refused(arguments: &str) -> Option<String> {
    let words = std::iter::once("springtide").chain(arguments.split_whitespace());
    let error = Cli::try_parse_from(words).err()?;
    let told = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion].contains(&error.kind());
    (!told).then(|| error.to_string())
}

#[test]
fn every_command_in_the_documents_is_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let (mut seen, mut complaints) = (0, Vec::new());
    for path in pages.chain([root.join("README.md")]) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (line, arguments) in commands(&text) {
            seen += 1;
            let complaint = refused(&arguments);
            complaints.extend(complaint.map(|why| format!("{}:{line}: {why}", path.display())));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(seen > 10, "only {seen} commands were found");
}

#[test]
fn a_command_that_is_none_is_found() {
    let text = "springtide plan --nothing\n```\nspringtide bench # comment\n./ci/just springtide plan --modle X\n\
                ```\n```text output\nspringtide: error\n```\n```bash test\nspringtide --version\n```\n";
    let found = commands(text);
    let lines: Vec<usize> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [3, 4, 10]);
    let refused: Vec<bool> = found.iter().map(|(_, text)| refused(text).is_some()).collect();
    assert_eq!(refused, [false, true, false]);
}
