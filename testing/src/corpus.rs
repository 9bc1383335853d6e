//! State machine tests whose failures are kept.
//!
//! A test draws sequences of steps and plays them. One that fails is shrunk and written as JSON into
//! `corpus/MACHINE/`, where every later run plays it first, on every machine. The files are part of the
//! repository: they are the machine's history of bugs, and they survive changes that shift random draws.

use std::{
    fmt::Debug,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestError, TestRunner},
};
use serde::{Serialize, de::DeserializeOwned};

/// Attempts to make a failing case smaller.
const SHRINKS_MAX: u32 = 20_000;

/// The seed of a run that asks for no other, so that a run in CI can be repeated.
const SEED: u64 = 1;

/// Plays every kept case of `machine`, then `count` cases that `cases` draws.
///
/// `PROPTEST_CASES` asks for another number of cases, `PROPTEST_RNG_SEED` for others.
///
/// # Panics
/// If `play` does, with the case and the file that keeps it, or if a kept file cannot be read.
pub fn check<T>(machine: &str, count: u32, cases: impl Strategy<Value = T>, play: impl Fn(T))
where
    T: Clone + Debug + Serialize + DeserializeOwned,
{
    let this = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = this.with_file_name("corpus").join(machine);
    check_in(&directory, count, cases, play);
}

fn check_in<T>(directory: &Path, count: u32, cases: impl Strategy<Value = T>, play: impl Fn(T))
where
    T: Clone + Debug + Serialize + DeserializeOwned,
{
    for file in kept(directory) {
        // A panic's message does not say which file it was.
        eprintln!("playing {}", file.display());
        play(read(&file));
    }
    let outcome = TestRunner::new(config(count)).run(&cases, |case| {
        play(case);
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Abort(reason)) => panic!("no cases could be drawn: {reason}"),
        Err(TestError::Fail(reason, case)) => {
            let file = keep(directory, &case);
            panic!("{reason}\n{case:#?}\nkept in {}: it runs first from now on", file.display());
        }
    }
}

fn config(count: u32) -> Config {
    let asked = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { asked.cases } else { count };
    let rng_seed = match asked.rng_seed {
        RngSeed::Random => RngSeed::Fixed(SEED),
        fixed => fixed,
    };
    let max_shrink_iters = SHRINKS_MAX;
    Config { cases, rng_seed, max_shrink_iters, failure_persistence: None, ..asked }
}

/// The kept cases, in the order of their names; none where there is no directory.
fn kept(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("the corpus can be listed").path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect();
    files.sort();
    files
}

fn read<T: DeserializeOwned>(file: &Path) -> T {
    let text = fs::read_to_string(file).expect("a kept case can be read");
    serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!(
            "{} is no case of this machine any more: {error}; bring it up to date",
            file.display()
        )
    })
}

/// Writes a case under a name that depends on its content only.
fn keep<T: Serialize>(directory: &Path, case: &T) -> PathBuf {
    let mut text = serde_json::to_string(case).expect("a case is plain data");
    text.push('\n');
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let file = directory.join(format!("{:016x}.json", hasher.finish()));
    fs::create_dir_all(directory).expect("the corpus can be written");
    fs::write(&file, text).expect("the corpus can be written");
    file
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, panic};

    use proptest::collection::vec;

    use super::*;

    /// Steps of which three large ones are too many.
    fn play(steps: Vec<u32>) {
        assert!(steps.iter().filter(|step| **step > 90).count() < 3, "too many large steps");
    }

    #[test]
    fn a_failure_is_shrunk_kept_and_played_first() {
        let directory =
            std::env::temp_dir().join(format!("springtide-corpus-{}", std::process::id()));
        let failed =
            panic::catch_unwind(|| check_in(&directory, 500, vec(0..100_u32, 0..50), play));
        let message = *failed.unwrap_err().downcast::<String>().unwrap();
        let [file] = kept(&directory).try_into().expect("one case is kept");
        assert!(
            message.contains("too many large steps") && message.contains(file.to_str().unwrap())
        );
        assert_eq!(read::<Vec<u32>>(&file), [91, 91, 91], "the smallest case that fails");
        let seen = RefCell::new(Vec::new());
        check_in(&directory, 3, vec(0..100_u32, 0..50), |steps| seen.borrow_mut().push(steps));
        assert_eq!(seen.borrow().len(), 4);
        assert_eq!(seen.borrow()[0], [91, 91, 91]);
        fs::write(&file, "[1, \"two\"]").unwrap();
        let refused = panic::catch_unwind(|| check_in(&directory, 1, vec(0..100_u32, 0..50), play));
        let message = *refused.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("is no case of this machine any more"), "{message}");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn runs_repeat_each_other() {
        let drawn = || {
            let seen = RefCell::new(Vec::new());
            let directory = Path::new("no such directory");
            check_in(directory, 20, vec(0..1000_u32, 0..9), |steps| seen.borrow_mut().push(steps));
            seen.into_inner()
        };
        assert_eq!(drawn(), drawn());
    }
}
