//! Checks that `docs/troubleshooting.md` and what the code prints are the same: a message that is quoted there
//! still stands in the code, and what the code reports is quoted there.
//!
//! On the page a message is code in the first cell of a table's row, and `…` stands for what is filled in.

use std::collections::BTreeSet;

use crate::repository::Source;

/// Begins what an error or a log line says.
const RUST_MARKS: [&str; 6] = [
    "#[error(",
    "tracing::warn!(",
    "tracing::error!(",
    "Failure::failed(",
    "Failure::usage(",
    "PyValueError::new_err(",
];
const PYTHON_MARKS: [&str; 3] = ["logger.warning(", "logger.error(", "raise ValueError("];

/// Shorter pieces between two placeholders say nothing of where they come from.
const PIECE_MIN: usize = 4;

/// Complains about messages of the page that no file has any more.
pub(crate) fn stale<'a>(
    page: &Source,
    code: impl Iterator<Item = &'a Source> + Clone,
) -> Vec<String> {
    let code: Vec<String> = code.map(|source| joined(&source.text)).collect();
    let mut complaints = Vec::new();
    for (number, message) in quoted(page) {
        let pieces = pieces(message.split('…'));
        let stands = |text: &String| pieces.iter().all(|piece| text.contains(*piece));
        if pieces.is_empty() || !code.iter().any(stands) {
            complaints.push(format!("{}:{number}: no file says {message:?}", page.path));
        }
    }
    complaints
}

/// Complains about messages of the code that the page does not have.
pub(crate) fn missing<'a>(page: &Source, code: impl Iterator<Item = &'a Source>) -> Vec<String> {
    let quoted: BTreeSet<&str> = quoted(page).map(|(_, message)| message).collect();
    let is_there = |piece: &str| quoted.iter().any(|message| message.contains(piece));
    let mut complaints = Vec::new();
    for source in code {
        let text = production(source);
        let marks: &[&str] = if source.path.ends_with(".py") { &PYTHON_MARKS } else { &RUST_MARKS };
        for at in marks.iter().flat_map(|mark| text.match_indices(mark)) {
            let Some(message) = literal(&text[at.0 + at.1.len()..]) else { continue };
            // What stands between placeholders is every second part.
            let plain = message.replace("%s", "{}").replace("%d", "{}").replace("%r", "{}");
            let found = pieces(plain.split(['{', '}']).step_by(2));
            if !found.iter().all(|piece| is_there(piece)) {
                complaints.push(format!("{}: {} lacks {message:?}", source.path, page.path));
            }
        }
    }
    complaints
}

/// The code of a file without its tests.
fn production(source: &Source) -> &str {
    source.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default()
}

/// Messages of the page, with their lines.
fn quoted(page: &Source) -> impl Iterator<Item = (usize, &str)> {
    page.text.lines().enumerate().filter_map(|(index, line)| {
        let cell = line.strip_prefix("| `")?;
        let message = cell.strip_prefix('`').map_or_else(
            || cell.split('`').next(),
            // Two backticks, for a message that has one.
            |cell| cell.split("``").next(),
        );
        Some((index + 1, message?.trim()))
    })
}

/// The parts that can be looked for.
fn pieces<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    parts.map(str::trim).filter(|part| part.chars().count() >= PIECE_MIN).collect()
}

/// A file's text, in which literals over several lines are in one piece.
fn joined(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut lines = text.lines();
    let mut next = lines.next();
    while let Some(line) = next {
        next = lines.next();
        let rust = line.strip_suffix('\\');
        let follows = next.is_some_and(|next| next.trim_start().starts_with('"'));
        let python = line.strip_suffix('"').filter(|_| follows);
        joined.push_str(rust.or(python).unwrap_or(line));
        let rest = next.map_or("", str::trim_start);
        match (rust, python) {
            (Some(_), _) => next = Some(rest),
            (None, Some(_)) => next = rest.strip_prefix('"'),
            (None, None) => joined.push('\n'),
        }
    }
    joined.replace("\\\"", "\"")
}

/// The first literal of an argument list, whole.
fn literal(text: &str) -> Option<String> {
    let text = joined(text.get(..text.len().min(600)).unwrap_or(text.split(';').next()?));
    let start = text.find('"')?;
    // What ends before a literal begins has none: `#[error(transparent)]`.
    if text[..start].contains([']', ';']) {
        return None;
    }
    let body = &text[start + 1..];
    let ends = ["\")", "\",", "\"\n"].iter().filter_map(|end| body.find(end));
    Some(body[..ends.min()?].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "#[error(\n    \"no master at {address} ({error:?}): is it \\\n     there?\"\n)]\n\
                        #[error(transparent)]\n#[error(\"{0}\")]\ntracing::warn!(%why, \"it went away\");\n\
                        #[cfg(test)]\nmod tests { tracing::warn!(\"only here\") }";
    const PYTHON: &str =
        "logger.warning(\n    \"not every %s of \"\n    \"them: %s\",\n    name,\n)";

    fn code() -> [Source; 2] {
        [Source::new("src/a.rs", CODE), Source::new("python/a.py", PYTHON)]
    }

    #[test]
    fn a_message_that_has_gone_is_found() {
        let text = "| `no master at … (…): is it there?` | a | `x` |\n| ``it went away`` | b |\n\
                    | `not every … of them: …` | c |\ntext `no message`\n| `no master at … or elsewhere` | d |\n\
                    | `…` | e |\n";
        let expected = [
            "docs/t.md:5: no file says \"no master at … or elsewhere\"",
            "docs/t.md:6: no file says \"…\"",
        ];
        assert_eq!(stale(&Source::new("docs/t.md", text), code().iter()), expected);
    }

    #[test]
    fn a_message_that_is_not_explained_is_found() {
        let page = Source::new("docs/t.md", "| `no master at … (…): is it there?` | a |\n");
        let expected = [
            "src/a.rs: docs/t.md lacks \"it went away\"",
            "python/a.py: docs/t.md lacks \"not every %s of them: %s\"",
        ];
        assert_eq!(missing(&page, code().iter()), expected);
        let all = "| `no master at … (…): is it there?` |\n| `it went away` |\n| `not every … of them: …` |\n";
        assert_eq!(missing(&Source::new("docs/t.md", all), code().iter()), [""; 0]);
    }
}
