//! Builds the C libraries of these tests with the system's C compiler.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Compiles `source`, a file beside the tests, to a shared library called `file` in a directory of its own,
/// called `directory`, with more `arguments` for the compiler. `None`, with the reason printed, on a machine
/// without a C compiler.
pub(crate) fn build(
    source: &str,
    directory: &str,
    file: &str,
    arguments: &[String],
) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    std::fs::create_dir_all(&directory).expect("the target directory is writable");
    let library = directory.join(file);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let compiler = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread", "-o"])
        .arg(&library)
        .arg(path)
        .args(arguments)
        .output();
    match compiler {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "cc failed on {source}:\n{errors}");
            Some(library)
        }
        Err(error) => {
            eprintln!("skipped: no C compiler to build {source} with (cc: {error})");
            None
        }
    }
}
