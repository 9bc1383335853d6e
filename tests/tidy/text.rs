//! Checks of documents, recipes and words. Each takes a file and gives one complaint a place.

use crate::{repository::Source, rust::find_words};

/// Words that mark work left undone.
const UNFINISHED: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// How absolute paths of somebody's machine begin.
const MACHINE_PATHS: [&str; 4] = ["/home/", "/root/", "/work/", "/Users/"];

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

/// Complains about recipes that a document tells to run and that the justfile does not have.
pub(crate) fn unknown_recipes(source: &Source, justfile: &Source) -> Vec<String> {
    let known: Vec<&str> = justfile.text.lines().filter_map(recipe).collect();
    let mut complaints = Vec::new();
    for (number, line) in numbered(source) {
        for rest in line.split("./ci/just ").skip(1) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && !"_-".contains(c));
            let name = &rest[..end.unwrap_or(rest.len())];
            if !name.is_empty() && !name.starts_with('-') && !known.contains(&name) {
                complaints.push(format!("{}:{number}: no recipe {name}", source.path));
            }
        }
    }
    complaints
}

/// Complains about words that speak of one machine.
pub(crate) fn machine_paths(source: &Source) -> Vec<String> {
    let lines = numbered(source);
    let found = lines.flat_map(|(number, line)| {
        let places = MACHINE_PATHS.iter().filter(move |place| line.contains(**place));
        places.map(move |place| {
            format!("{}:{number}: {place} is a place on one machine", source.path)
        })
    });
    found.collect()
}

/// Complains about links of a Markdown file that lead to no file, or to no heading of one. `exists` tells
/// whether a path from the root is there, `document` gives the Markdown file under one. Links to elsewhere are
/// not followed.
pub(crate) fn broken_links<'a>(
    source: &'a Source,
    exists: impl Fn(&str) -> bool,
    document: impl Fn(&str) -> Option<&'a Source>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut fenced = false;
    for (number, line) in numbered(source) {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for target in link_targets(line) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            let path = resolve(&source.path, file);
            let missing = if !file.is_empty() && !exists(&path) {
                "no file"
            } else {
                let led_to = if file.is_empty() { Some(source) } else { document(&path) };
                let found = led_to.is_none_or(|led_to| has_heading(led_to, anchor));
                if anchor.is_empty() || found { continue } else { "no heading" }
            };
            complaints
                .push(format!("{}:{number}: link to {target}, which is {missing}", source.path));
        }
    }
    complaints
}

/// Complains about code of a Markdown file that names the file which it is from (after the language, where a
/// block begins) and is not in it, indentation aside.
pub(crate) fn changed_excerpts<'a>(
    source: &Source,
    file: impl Fn(&str) -> Option<&'a Source>,
) -> Vec<String> {
    let trimmed =
        |text: &str| text.lines().map(|line| format!("{}\n", line.trim())).collect::<String>();
    let mut complaints = Vec::new();
    let mut lines = numbered(source);
    while let Some((number, line)) = lines.next() {
        let Some((_, path)) = line.strip_prefix("```").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let block: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        if !path.contains('/') {
            continue;
        }
        if !file(path).is_some_and(|file| trimmed(&file.text).contains(&trimmed(&block.join("\n"))))
        {
            complaints.push(format!("{}:{number}: {path} has no such lines", source.path));
        }
    }
    complaints
}

/// Whether a Markdown file has a heading that this anchor leads to.
fn has_heading(document: &Source, anchor: &str) -> bool {
    let headings = document.text.lines().filter(|line| line.starts_with('#'));
    let mut slugs = headings.map(|line| {
        let kept = line.trim_start_matches('#').trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c),
            _ => None,
        });
        kept.collect::<String>().to_lowercase()
    });
    slugs.any(|slug| slug == anchor)
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
pub(crate) fn resolve(from: &str, target: &str) -> String {
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
    fn a_place_on_one_machine_is_found() {
        let source = Source::new("docs/a.md", "see /dev/shm and\n/home/somebody/x\n");
        assert_eq!(machine_paths(&source), ["docs/a.md:2: /home/ is a place on one machine"]);
    }

    #[test]
    fn a_recipe_without_a_comment_is_found() {
        let text = "# About the file\n\nname := \"x\"\nset shell := [\"bash\"]\n\n# Good\ngood *ARGS: other\n    \
                    echo a:b\n\n# Good too\n[no-cd]\n@quiet:\n    true\n\n_private:\n    true\n\nbad ARG=\"1\":\n";
        let complaints = undocumented_recipes(&Source::new("justfile", text));
        assert_eq!(complaints, ["justfile:18: recipe bad has no comment"]);
    }

    #[test]
    fn a_recipe_that_is_not_there_is_found() {
        let justfile = Source::new("justfile", "good *ARGS:\n    echo\n@also-good:\n");
        let text = "./ci/just good x and `./ci/just also-good`\n./ci/just --list\n./ci/just   # all\n./ci/just bad\n";
        let complaints = unknown_recipes(&Source::new("docs/a.md", text), &justfile);
        assert_eq!(complaints, ["docs/a.md:4: no recipe bad"]);
    }

    #[test]
    fn a_broken_link_is_found() {
        let text = "# Here, `now`\n[good](b.md#a-part) and [up](../README.md), [web](https://a/b#c), [x](#here-now)\n\
                    ```\n[code](nowhere.md)\n```\n`[code](nowhere.md)` [bad](c/d.md)\n[name]: e.md\n\
                    [no part](b.md#other) [no place](#there)\n";
        let exists = |path: &str| ["docs/b.md", "README.md"].contains(&path);
        let other = Source::new("docs/b.md", "text\n\n## A part\n");
        let document = |path: &str| (path == "docs/b.md").then_some(&other);
        let source = Source::new("docs/a.md", text);
        let complaints = broken_links(&source, exists, document);
        let expected = [
            "docs/a.md:6: link to c/d.md, which is no file",
            "docs/a.md:7: link to e.md, which is no file",
            "docs/a.md:8: link to b.md#other, which is no heading",
            "docs/a.md:8: link to #there, which is no heading",
        ];
        assert_eq!(complaints, expected);
    }

    #[test]
    fn an_excerpt_that_is_not_in_its_file_is_found() {
        let text = "```rust a/b.rs\n  one\n  two\n```\n```rust a/b.rs\none\nthree\n```\n```rust a/c.rs\none\n```\n\
                    ```bash test\nfour\n```\n```\nfive\n```\n";
        let code = Source::new("a/b.rs", "zero\n    one\n    two\nthree\n");
        let file = |path: &str| (path == "a/b.rs").then_some(&code);
        let complaints = changed_excerpts(&Source::new("docs/a.md", text), file);
        let expected =
            ["docs/a.md:5: a/b.rs has no such lines", "docs/a.md:9: a/c.rs has no such lines"];
        assert_eq!(complaints, expected);
    }
}
