//! Finding the library: what is missing is named, and the two ways of looking find what they should.

#![expect(unsafe_code, reason = "loads a C library")]

mod common;

use std::{
    env,
    path::Path,
    process::{Command, Output},
};

use mooncake_sys::{Api, DEFAULT_LIBRARY, LIBRARY_VARIABLE, Library, LoadError};

/// Every function of `store_c.h`, written down once more.
const FUNCTIONS: [&str; 19] = [
    "mooncake_store_create",
    "mooncake_store_destroy",
    "mooncake_store_setup",
    "mooncake_store_init_all",
    "mooncake_store_health_check",
    "mooncake_store_put",
    "mooncake_store_put_from",
    "mooncake_store_batch_put_from",
    "mooncake_store_get_into",
    "mooncake_store_batch_get_into",
    "mooncake_store_is_exist",
    "mooncake_store_batch_is_exist",
    "mooncake_store_get_size",
    "mooncake_store_get_hostname",
    "mooncake_store_remove",
    "mooncake_store_remove_by_regex",
    "mooncake_store_remove_all",
    "mooncake_store_register_buffer",
    "mooncake_store_unregister_buffer",
];

#[test]
fn the_table_is_the_header() {
    assert_eq!(Api::SYMBOLS, FUNCTIONS);
    let pointers = size_of::<Api>() / size_of::<extern "C" fn()>();
    assert_eq!(pointers, FUNCTIONS.len(), "one pointer a function and nothing else");
}

#[test]
fn missing_library_is_named() {
    let path = "/nowhere/libmooncake_store.so";
    // SAFETY: there is nothing to load.
    let error = unsafe { Library::open(path) }.expect_err("there is no such file");
    let text = error.to_string();
    assert!(text.starts_with("cannot load /nowhere/libmooncake_store.so: "), "{text}");
    assert!(text.contains("No such file"), "the loader's own words: {text}");
    let LoadError::Library { path: named, .. } = error else { panic!("wrong kind: {error:?}") };
    assert_eq!(named, Path::new(path));
}

/// Each function in turn is renamed by the preprocessor, so that 18 of 19 are exported.
#[test]
fn each_missing_symbol_is_named() {
    for name in FUNCTIONS {
        let rename = vec![format!("-D{name}=renamed")];
        let file = format!("lib_without_{name}.so");
        let Some(path) = common::build("echo.c", "missing_symbol", &file, &rename) else { return };
        // SAFETY: built from echo.c, which has no initialisers.
        let error = unsafe { Library::open(&path) }.expect_err("one function is missing");
        assert_eq!(error, LoadError::Symbols { path: path.clone(), missing: vec![name] });
        assert_eq!(
            error.to_string(),
            format!("{} lacks 1 of the 19 functions of store_c.h: {name}", path.display())
        );
    }
}

/// A library that is something else altogether.
#[test]
fn all_missing_symbols_are_named() {
    let renames = FUNCTIONS.map(|name| format!("-D{name}=other_{name}"));
    let Some(path) = common::build("echo.c", "missing_symbol", "libother.so", &renames) else {
        return;
    };
    // SAFETY: built from echo.c, which has no initialisers.
    let error = unsafe { Library::open(&path) }.expect_err("every function is missing");
    assert_eq!(error, LoadError::Symbols { path, missing: FUNCTIONS.to_vec() });
}

#[test]
fn from_env_needs_the_variable() {
    let unset = "MOONCAKE_STORE_LIBRARY is not set: expected the path of Mooncake's \
                 libmooncake_store.so";
    assert_eq!(probe("from_env", &[]), Err(unset.to_owned()));
    assert_eq!(probe("from_env", &[(LIBRARY_VARIABLE, Path::new(""))]), Err(unset.to_owned()));
}

#[test]
fn from_env_opens_what_the_variable_names() {
    let Some(path) = common::build("echo.c", "from_env", "libnamed.so", &[]) else { return };
    let found = probe("from_env", &[(LIBRARY_VARIABLE, &path)]);
    assert_eq!(found, Ok(path.display().to_string()));
}

#[test]
fn load_follows_the_search_path() {
    let Some(path) = common::build("echo.c", "search_path", DEFAULT_LIBRARY, &[]) else { return };
    let directory = path.parent().expect("it was built in a directory");
    let found = probe("load", &[("LD_LIBRARY_PATH", directory)]);
    assert_eq!(found, Ok(DEFAULT_LIBRARY.to_owned()));

    let empty = directory.join("empty");
    std::fs::create_dir_all(&empty).expect("the target directory is writable");
    let error = probe("load", &[("LD_LIBRARY_PATH", &empty)]).expect_err("nothing to find");
    assert!(error.starts_with("cannot load libmooncake_store.so: "), "{error}");
}

/// Loads in a process of its own, for the environment and the loader's path belong to a process; gives
/// the path of the library or the text of the error.
fn probe(how: &str, environment: &[(&str, &Path)]) -> Result<String, String> {
    let test = env::current_exe().expect("a test knows its program");
    let Output { status, stdout, stderr } = Command::new(test)
        .args(["--exact", "probe_in_this_process", "--ignored", "--nocapture"])
        .env_remove(LIBRARY_VARIABLE)
        .env("PROBE", how)
        .envs(environment.iter().copied())
        .output()
        .expect("a test can run its program");
    let output = String::from_utf8_lossy(&stdout);
    let mut answers = output.lines();
    answers
        .find_map(|line| match line.split_once("probe: ")?.1.split_once(' ')? {
            ("found", path) => Some(Ok(path.to_owned())),
            (_, error) => Some(Err(error.to_owned())),
        })
        .unwrap_or_else(|| panic!("{status}\n{output}\n{}", String::from_utf8_lossy(&stderr)))
}

#[test]
#[ignore = "run by the tests above in a process of its own"]
fn probe_in_this_process() {
    let Some(how) = env::var_os("PROBE") else { return };
    // SAFETY: the tests above let it find an echo library or nothing.
    let library = unsafe { if how == "load" { Library::load() } else { Library::from_env() } };
    match library {
        Ok(library) => println!("\nprobe: found {}", library.path().display()),
        Err(error) => println!("\nprobe: failed {error}"),
    }
}
