//! Checks of documents, recipes and words. Each takes a file and gives one complaint a place.

use crate::{repository::Source, rust::find_words};

/// Words that mark work left undone.
const UNFINISHED: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// Complains about marks of work left undone, in comments too.
pub(crate) fn unfinished(source: &Source) -> Vec<String> {
    let lines = numbered(source);
    let found = lines.flat_map(|(number, line)| {
        let words = UNFINISHED.iter().filter(move |word| find_words(line, word).next().is_some());
        words.map(move |word| format!("{}:{number}: {word} is left", source.path))
    });
    found.collect()
}

/// Complains about public recipes of a justfile without a comment on the line above them (attributes may
/// stand between): `just --list` shows it.
pub(crate) fn undocumented_recipes(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut documented = false;
    for (number, line) in numbered(source) {
        match recipe(line) {
            Some(name) if !documented && !name.starts_with('_') => {
                complaints.push(format!("{}:{number}: recipe {name} has no comment", source.path));
            }
            _ => {}
        }
        documented = line.starts_with('#') || documented && line.starts_with('[');
    }
    complaints
}

/// The name of the recipe that a line of a justfile begins.
fn recipe(line: &str) -> Option<&str> {
    let line = line.strip_prefix('@').unwrap_or(line);
    let (head, rest) = line.split_once(':')?;
    let name = head.split_whitespace().next()?;
    let is_name = name.chars().all(|c| c.is_alphanumeric() || "_-".contains(c));
    let is_assignment = rest.starts_with('=') || matches!(name, "alias" | "set" | "export");
    (is_name && !is_assignment && line.starts_with(name)).then_some(name)
}

/// Complains about links of a Markdown file that lead to no file; `exists` tells whether a path from the
/// root does. Links to elsewhere and within the file are not followed.
pub(crate) fn broken_links(source: &Source, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut fenced = false;
    for (number, line) in numbered(source) {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for target in link_targets(line) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = file.contains("://") || file.starts_with("mailto:");
            if !elsewhere && !file.is_empty() && !exists(&resolve(&source.path, file)) {
                complaints
                    .push(format!("{}:{number}: link to {target}, which is no file", source.path));
            }
        }
    }
    complaints
}

/// Targets of `[text](target)`, and of a definition `[name]: target`, outside of code.
fn link_targets(line: &str) -> Vec<&str> {
    let prose = line.split('`').step_by(2);
    let inline =
        prose.flat_map(|part| part.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    inline.chain(definition.map(|(_, target)| target)).map(str::trim).collect()
}

/// The path from the root of `target`, seen from the file `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            // A link that leaves the repository keeps its `..`, and is found where it leads.
            ".." if parts.last().is_some_and(|last| *last != "..") => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn numbered(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_of_unfinished_work_is_found() {
        for word in UNFINISHED {
            let source = Source::new("docs/a.md", &format!("text\n<!-- {word}: later -->\n"));
            assert_eq!(unfinished(&source), [format!("docs/a.md:2: {word} is left")]);
        }
        assert!(unfinished(&Source::new("a.sh", "mktemp /tmp/XXXXXX")).is_empty());
    }

    #[test]
    fn a_recipe_without_a_comment_is_found() {
        let text = "# About the file\n\nname := \"x\"\nset shell := [\"bash\"]\n\n# Good\ngood *ARGS: other\n    \
                    echo a:b\n\n# Good too\n[no-cd]\n@quiet:\n    true\n\n_private:\n    true\n\nbad ARG=\"1\":\n";
        let complaints = undocumented_recipes(&Source::new("justfile", text));
        assert_eq!(complaints, ["justfile:18: recipe bad has no comment"]);
    }

    #[test]
    fn a_broken_link_is_found() {
        let text = "[good](b.md#part) and [up](../README.md), [web](https://a/b), [here](#x)\n\
                    ```\n[code](nowhere.md)\n```\n`[code](nowhere.md)` [bad](c/d.md)\n[name]: e.md\n";
        let exists = |path: &str| ["docs/b.md", "README.md"].contains(&path);
        let complaints = broken_links(&Source::new("docs/a.md", text), exists);
        let expected = [
            "docs/a.md:5: link to c/d.md, which is no file",
            "docs/a.md:6: link to e.md, which is no file",
        ];
        assert_eq!(complaints, expected);
    }
}
