//! Builds the echo library of `echo.c` with the system's C compiler.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Compiles `echo.c` to a shared library called `file` in a directory of its own, called `directory`,
/// with more `arguments` for the compiler. `None`, with the reason printed, on a machine without a C
/// compiler.
pub(crate) fn build_echo(directory: &str, file: &str, arguments: &[String]) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    std::fs::create_dir_all(&directory).expect("the target directory is writable");
    let library = directory.join(file);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/echo.c");
    let compiler = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .args(arguments)
        .output();
    match compiler {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "cc failed on echo.c:\n{errors}");
            Some(library)
        }
        Err(error) => {
            eprintln!("skipped: no C compiler to build the echo library with (cc: {error})");
            None
        }
    }
}
