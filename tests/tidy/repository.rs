//! The repository's own text files: what is built, installed or ignored is not among them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::rust;

/// Kinds of files that are read; others (data, pictures) are only known to exist.
const TEXT: [&str; 8] = [".rs", ".md", ".toml", ".py", ".sh", ".c", ".supp", "justfile"];

/// One text file.
pub(crate) struct Source {
    /// Path from the root, with `/` between its parts.
    pub(crate) path: String,
    /// Its content.
    pub(crate) text: String,
    /// For Rust, the content with comments and literals blanked out; else empty.
    pub(crate) code: String,
}

impl Source {
    /// A file with this content.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { rust::blank(text) } else { String::new() };
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    /// Number of lines.
    pub(crate) fn lines(&self) -> usize {
        self.text.lines().count()
    }

    /// Whether its path begins with one of `prefixes`.
    pub(crate) fn is_in(&self, prefixes: &[&str]) -> bool {
        prefixes.iter().any(|prefix| self.path.starts_with(prefix))
    }
}

/// Every file of the repository.
pub(crate) struct Repository {
    root: PathBuf,
    sources: Vec<Source>,
}

impl Repository {
    /// Reads all text files, in the order of their paths.
    pub(crate) fn read() -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let mut paths = Vec::new();
        walk(&root, &mut paths);
        paths.sort();
        let sources = paths.iter().filter_map(|path| {
            let name = path.strip_prefix(&root).expect("found under the root").to_str()?;
            let is_text = TEXT.iter().any(|kind| name.ends_with(kind)) || is_script(path);
            is_text.then(|| Source::new(name, &fs::read_to_string(path).expect("text is UTF-8")))
        });
        let sources: Vec<Source> = sources.collect();
        assert!(!sources.is_empty(), "nothing found under {}", root.display());
        Self { root, sources }
    }

    /// All text files.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Source> + Clone {
        self.sources.iter()
    }

    /// Rust files under one of `prefixes`.
    pub(crate) fn rust<'a>(
        &'a self,
        prefixes: &'a [&str],
    ) -> impl Iterator<Item = &'a Source> + Clone {
        self.sources.iter().filter(|source| source.path.ends_with(".rs") && source.is_in(prefixes))
    }

    /// The text file with this path.
    pub(crate) fn get(&self, path: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.path == path)
    }

    /// Whether there is a file or directory with this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
}

/// Adds every file below `directory`, but not what is built, installed or hidden.
fn walk(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the repository can be read") {
        let entry = entry.expect("an entry of a directory can be read");
        let name = entry.file_name();
        let name = name.to_str().expect("names are UTF-8");
        let kind = entry.file_type().expect("an entry has a type");
        let hidden = name.starts_with('.') && !matches!(name, ".ci" | ".cargo" | ".config");
        if kind.is_dir() && !hidden && !matches!(name, "target" | "__pycache__") {
            walk(&entry.path(), paths);
        } else if kind.is_file() && !hidden {
            paths.push(entry.path());
        }
    }
}

/// Whether a file is a script: it has no extension and begins with `#!`.
fn is_script(path: &Path) -> bool {
    path.extension().is_none() && fs::read(path).is_ok_and(|content| content.starts_with(b"#!"))
}
