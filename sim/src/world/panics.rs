//! Panics as facts of a run: the message of the last one on this thread, with its place.
//!
//! Runs share a process but not a thread, so each thread keeps its own. The hook stays silent for threads
//! that collect, and passes everything else on.

use std::{cell::RefCell, panic, sync::Once};

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
    static COLLECTS: RefCell<bool> = const { RefCell::new(false) };
}

/// Collects this thread's panics from now on.
pub fn collect() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !COLLECTS.with_borrow(|collects| *collects) {
                return others(info);
            }
            let place = info.location().map(|l| format!("{}:{}", l.file(), l.line()));
            let message = info.payload_as_str().unwrap_or("no message");
            let text = format!("{message} ({})", place.as_deref().unwrap_or("nowhere"));
            // The first panic is the cause; tokio and turmoil panic after it.
            LAST.with_borrow_mut(|last| last.get_or_insert(text).clone());
        }));
    });
    COLLECTS.set(true);
    LAST.set(None);
}

/// The first panic since [`collect`].
pub fn take() -> Option<String> {
    LAST.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_panic_is_kept() {
        collect();
        for text in ["first", "second"] {
            assert!(panic::catch_unwind(|| panic!("{text}")).is_err());
        }
        let message = take().unwrap();
        assert!(message.starts_with("first (") && message.contains("panics.rs"), "{message}");
        assert_eq!(take(), None);
    }
}
