//! As much of Rust's syntax as the checks need. Not a parser: macros are read as if they were code.

use std::ops::Range;

/// `text` with comments and the contents of literals turned into blanks, so that what is left is code.
/// Lines and columns stay.
pub(crate) fn blank(text: &str) -> String {
    let mut rest = text;
    let mut code = String::with_capacity(text.len());
    let mut previous = ' ';
    while let Some(first) = rest.chars().next() {
        // A prefix such as the `r` of a raw string counts only where no word goes on.
        let literal = if is_word(previous) { 0 } else { literal_length(rest) };
        let length = literal.max(comment_length(rest));
        if length == 0 {
            code.push(first);
            previous = first;
            rest = &rest[first.len_utf8()..];
        } else {
            code.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            previous = ' ';
            rest = &rest[length..];
        }
    }
    code
}

/// Length in bytes of the comment that `text` begins with; 0 if it begins with none.
fn comment_length(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if !text.starts_with("/*") {
        return 0;
    }
    let (mut depth, mut position) = (0, 0);
    while position < text.len() {
        let rest = &text[position..];
        let (step, change) = match rest {
            _ if rest.starts_with("/*") => (2, 1),
            _ if rest.starts_with("*/") => (2, -1),
            _ => (rest.chars().next().map_or(1, char::len_utf8), 0),
        };
        (depth, position) = (depth + change, position + step);
        if depth == 0 {
            return position;
        }
    }
    text.len()
}

/// Length in bytes of the string or character that `text` begins with; 0 if it begins with none, a
/// lifetime for example.
fn literal_length(text: &str) -> usize {
    let unprefixed = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - unprefixed.len();
    if prefix > 1 {
        return 0;
    }
    if let Some(raw) = unprefixed.strip_prefix('r') {
        let fence = raw.len() - raw.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(fence));
        return match raw[fence..].strip_prefix('"').map(|body| body.find(&end)) {
            Some(Some(body)) => prefix + 1 + fence + 1 + body + end.len(),
            Some(None) => text.len(),
            None => 0,
        };
    }
    match unprefixed.chars().next() {
        Some('"') => prefix + quoted_length(unprefixed, '"'),
        Some('\'') if is_character(unprefixed) => prefix + quoted_length(unprefixed, '\''),
        _ => 0,
    }
}

/// Length of a literal up to its closing `quote`, minding backslashes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (position, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return position + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Tells `'a'` and `'\n'` from the lifetime `'a`.
fn is_character(text: &str) -> bool {
    let mut following = text.chars().skip(1);
    match following.next() {
        Some('\\') => true,
        Some(_) => following.next() == Some('\''),
        None => false,
    }
}

/// Whether `c` may stand in an identifier.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `pattern` occurs in `code` as a word of its own: `unsafe` is not in `unsafe_code`.
pub(crate) fn find_words<'a>(code: &'a str, pattern: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(pattern).map(|(start, _)| start).filter(move |&start| {
        let before = code[..start].chars().next_back();
        let after = code[start + pattern.len()..].chars().next();
        let goes_on = pattern.ends_with(is_word) && after.is_some_and(is_word);
        !before.is_some_and(is_word) && !goes_on
    })
}

/// The number, from 1, of the line that contains `position`.
pub(crate) fn line_of(text: &str, position: usize) -> usize {
    text[..position].matches('\n').count() + 1
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    /// From the word `fn` to the closing brace.
    pub(crate) range: Range<usize>,
}

/// All functions with a body, nested ones too.
pub(crate) fn functions(code: &str) -> Vec<Function<'_>> {
    let found = find_words(code, "fn").filter_map(|start| {
        let signature = code[start + 2..].trim_start();
        let name = &signature[..signature.find(|c| !is_word(c))?];
        // `fn(u32)` is a type.
        if name.is_empty() {
            return None;
        }
        let end = start + body_end(&code[start..])?;
        Some(Function { name, range: start..end })
    });
    found.collect()
}

/// The end of the body of the function that `code` begins with; `None` if it is only declared.
fn body_end(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (position, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            // In `[u8; 4]` the semicolon ends nothing.
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' => braces -= 1,
            _ => {}
        }
        if c == '}' && braces == 0 {
            return Some(position + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let cases = [
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            (r#"f("un\"safe") + 1"#, "f(          ) + 1"),
            ("f(r#\"a\"b\"#) + br\"c\"", "f(        ) +      "),
            ("'x' + b'\"' + '\\'' + 1", "    +      +      + 1"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("r#fn x", "r#fn x"),
        ];
        for (text, expected) in cases {
            assert_eq!(blank(text), expected, "{text}");
        }
    }

    #[test]
    fn words_end_where_they_end() {
        let code = "unsafe_code unsafe not_unsafe rand::rng brand::new";
        assert_eq!(find_words(code, "unsafe").collect::<Vec<_>>(), [12]);
        assert_eq!(find_words(code, "rand::").collect::<Vec<_>>(), [30]);
    }

    #[test]
    fn functions_are_found_with_their_bodies() {
        let code = "trait T { fn declared(x: [u8; 4]); }\nfn outer() -> [u8; 2] {\n fn inner() {}\n}\n\
                    type F = fn(u8) -> u8;";
        let found: Vec<_> = functions(code).into_iter().map(|f| (f.name, &code[f.range])).collect();
        let outer = "fn outer() -> [u8; 2] {\n fn inner() {}\n}";
        assert_eq!(found, [("outer", outer), ("inner", "fn inner() {}")]);
    }
}
