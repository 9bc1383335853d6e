//! Panics as facts of a run: the message of the first one on this thread, with its place.
//!
//! Runs share a process but not a thread, so each thread keeps its own. The hook stays silent for threads
//! that collect, and passes everything else on. A panic in a destructor while another one unwinds aborts the
//! process whatever anybody does; then the hook is the last to act, and hands the plan and the first message
//! to whoever asked for it, so that even such a run leaves a report.

use std::{
    cell::RefCell,
    convert::Infallible,
    panic,
    sync::{Mutex, Once, OnceLock, PoisonError},
};

use super::engine::EngineKind;
use crate::plan::Plan;

/// What the standard library says when it is about to abort.
const ABORTING: [&str; 2] =
    ["panic in a destructor during cleanup", "panic in a function that cannot unwind"];

/// Called for a run that is about to abort the process, with its plan, its engine and the first panic's message.
/// Ends the process itself.
pub type LastWords = fn(&Plan, EngineKind, &str) -> Infallible;

static LAST_WORDS: OnceLock<LastWords> = OnceLock::new();

/// Held by the one that speaks, until the process has ended: of two runs that abort together only one reports.
static SPEAKING: Mutex<()> = Mutex::new(());

thread_local! {
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
    static PLAN: RefCell<Option<(Plan, EngineKind)>> = const { RefCell::new(None) };
}

/// Has `last_words` called before a run aborts the process. The first call decides.
pub fn before_abort(last_words: LastWords) {
    // A second caller's words would come too late anyway.
    let _ = LAST_WORDS.set(last_words);
}

/// Collects this thread's panics from now on, for a run of `plan` on `engine`.
pub fn collect(plan: &Plan, engine: EngineKind) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if PLAN.with_borrow(Option::is_none) {
                return others(info);
            }
            let place = info.location().map(|l| format!("{}:{}", l.file(), l.line()));
            let message = info.payload_as_str().unwrap_or("no message");
            let text = format!("{message} ({})", place.as_deref().unwrap_or("nowhere"));
            // The first panic is the cause; the engine panics after it.
            let first = FIRST.with_borrow_mut(|first| first.get_or_insert(text).clone());
            if ABORTING.contains(&message)
                && let Some(last_words) = LAST_WORDS.get()
            {
                let _speaking = SPEAKING.lock().unwrap_or_else(PoisonError::into_inner);
                PLAN.with_borrow(|run| {
                    run.as_ref().map(|(plan, engine)| last_words(plan, *engine, &first))
                });
            }
        }));
    });
    PLAN.set(Some((plan.clone(), engine)));
    FIRST.set(None);
}

/// The first panic since [`collect`].
pub fn take() -> Option<String> {
    FIRST.take()
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Command, exit},
        sync::Barrier,
        thread,
        time::Duration,
    };

    use super::*;
    use crate::plan::Workload;

    #[test]
    fn the_first_panic_is_kept() {
        collect(&Plan::base("panics", Workload::W1), EngineKind::default());
        for text in ["first", "second"] {
            assert!(panic::catch_unwind(|| panic!("{text}")).is_err());
        }
        let message = take().unwrap();
        assert!(message.starts_with("first (") && message.contains("panics.rs"), "{message}");
        assert_eq!(take(), None);
    }

    /// Panics, and panics once more while it unwinds.
    struct Twice;

    impl Drop for Twice {
        fn drop(&mut self) {
            panic!("second");
        }
    }

    #[test]
    fn of_runs_that_abort_together_one_reports() {
        const CHILD: &str = "SPRINGTIDE_TEST_ABORTS";
        if std::env::var_os(CHILD).is_some() {
            abort_together();
        }
        for _ in 0..10 {
            let this = "world::panics::tests::of_runs_that_abort_together_one_reports";
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", this, "--nocapture"])
                .env(CHILD, "1")
                .output()
                .unwrap();
            let text = String::from_utf8(child.stdout).unwrap();
            assert_eq!(text.matches("last words: first").count(), 1, "{text}");
            assert_eq!(child.status.code(), Some(7));
        }
    }

    #[expect(clippy::disallowed_methods, reason = "real threads of a process of its own")]
    fn abort_together() -> ! {
        before_abort(|_, _, first| {
            println!("last words: {first}");
            // Long enough for the other one to speak, too, if it could.
            thread::sleep(Duration::from_millis(20));
            exit(7)
        });
        let together = Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    collect(&Plan::base("panics", Workload::W1), EngineKind::default());
                    together.wait();
                    let _twice = Twice;
                    panic!("first");
                });
            }
        });
        unreachable!("both abort")
    }
}
