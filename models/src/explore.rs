//! Runs one model in loom and says what it took.

use std::{
    cell::RefCell,
    fmt, panic,
    sync::{
        Arc, Once,
        atomic::{AtomicU64, Ordering},
    },
};

use springtide::{
    env::{Clock as _, Time},
    runtime::TokioClock,
};

/// Operations on shared state that one execution may make. Loom's own limit of 1000 is meant to find spin
/// loops; the production code has none, and a save alone takes some hundred.
const BRANCHES_MAX: usize = 20_000;

/// How much of the interleavings a model covers. It stands at the end of the model's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// All of them.
    Exhaustive,
    /// All those in which the scheduler takes the processor from a running thread at most so often. Threads
    /// that wait give it up of themselves, and that does not count.
    Preemptions(usize),
}

impl Bound {
    /// The bound that a model's name states: `…_exhaustive` or `…_preempt2`.
    ///
    /// # Panics
    /// If it states none.
    pub fn of(name: &str) -> Self {
        let end = name.rsplit('_').next().unwrap_or_default();
        match (end, end.strip_prefix("preempt").map(str::parse)) {
            ("exhaustive", _) => Self::Exhaustive,
            (_, Some(Ok(bound))) => Self::Preemptions(bound),
            _ => panic!("expected a name that ends in _exhaustive or _preemptN, got {name}"),
        }
    }
}

/// Asks for more preemptions than the names state, for runs that may take long.
const MORE: &str = "SPRINGTIDE_MODEL_MORE";

/// Runs a model in every interleaving within its bound, and prints `model NAME EXECUTIONS SECONDS`, which is
/// what `ci/loom` reads.
///
/// # Panics
/// If an interleaving does: an assertion, a data race, or threads that all wait.
pub fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = BRANCHES_MAX;
    let more: usize = std::env::var(MORE).map_or(0, |more| more.parse().expect("a number"));
    let mut name = name.to_owned();
    builder.preemption_bound = match Bound::of(&name) {
        Bound::Exhaustive => None,
        Bound::Preemptions(bound) => {
            name = name.replace(&format!("preempt{bound}"), &format!("preempt{}", bound + more));
            Some(bound + more)
        }
    };
    let progress = Progress::new(&name);
    say_what_fails();
    CURRENT.set(Some(progress.clone()));
    let executions = Arc::clone(&progress.executions);
    builder.check(move || {
        executions.fetch_add(1, Ordering::Relaxed);
        model();
    });
    CURRENT.take();
    println!("model {progress}");
}

/// What a model has taken so far.
#[derive(Clone)]
struct Progress {
    name: String,
    executions: Arc<AtomicU64>,
    clock: TokioClock,
    start: Time,
}

impl Progress {
    fn new(name: &str) -> Self {
        let clock = TokioClock::new();
        Self { name: name.to_owned(), executions: Arc::default(), start: clock.now(), clock }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let executions = self.executions.load(Ordering::Relaxed);
        let seconds = (self.clock.now() - self.start).as_secs_f64();
        write!(f, "{} {executions} {seconds:.1}", self.name)
    }
}

thread_local! {
    /// The model of this thread, until it has failed.
    static CURRENT: RefCell<Option<Progress>> = const { RefCell::new(None) };
}

/// Prints `failed NAME EXECUTIONS SECONDS` when a model panics for the first time: while loom unwinds a
/// model it may panic again, which ends the process.
fn say_what_fails() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if let Some(progress) = CURRENT.take() {
                println!("failed {progress}");
            }
            default(info);
        }));
    });
}
