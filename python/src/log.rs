//! What the connector reports, as messages of Python's `logging`.
//!
//! vLLM shows what loggers below `vllm` say. Whoever reports here must not wait for the interpreter, so
//! messages go through a bounded queue to a thread that does; what does not fit is lost, and counted. Of each
//! kind a few lines pass in a while, those of Python too: see [`admit`]. What comes from outside stays on its
//! line.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Write},
    sync::{
        LazyLock, Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use pyo3::prelude::*;
use springtide::{
    env::Clock,
    log::{ITEMS, Limiter, shown_within},
    runtime::TokioClock,
};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
};
use tracing_subscriber::{Layer, Registry, layer::Context, prelude::*};

/// The logger's name. Not the one that Python's side of the plug-in uses: what passes there is limited there.
const LOGGER: &str = "vllm.springtide.native";

/// Messages that wait for the interpreter. Each item of a busy instance has about ten, if they are asked for.
const QUEUE: usize = 4096;

/// The most characters of a message.
const MESSAGE_MAX: usize = 1024;

/// How often is told what was suppressed, if no line of its kind comes.
const SUMMARY: Duration = Duration::from_secs(10);

// Levels of Python's `logging`.
const ERROR: i32 = 40;
const WARNING: i32 = 30;
const INFO: i32 = 20;
const DEBUG: i32 = 10;

static LOST: AtomicU64 = AtomicU64::new(0);

/// The one limiter of this process.
static LIMIT: LazyLock<Limit> =
    LazyLock::new(|| Limit { clock: TokioClock::new(), limiter: Mutex::new(Limiter::default()) });

struct Limit {
    clock: TokioClock,
    limiter: Mutex<Limiter>,
}

impl Limit {
    fn limiter(&self) -> MutexGuard<'_, Limiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a line of this message's kind may be written now; if so, how many were suppressed before it.
pub fn admit(message: &str) -> Option<u64> {
    LIMIT.limiter().admit(message, LIMIT.clock.now())
}

/// How many lines were suppressed, by kind.
pub fn suppressed() -> BTreeMap<String, u64> {
    LIMIT.limiter().suppressed()
}

/// How many lines were lost because the interpreter did not take them in time.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Sends what this crate and the connector report to Python, from now on: the ways of items only if the logger
/// is at `DEBUG` already. Does nothing the second time, or where somebody else listens.
pub fn start(py: Python<'_>) {
    static START: Once = Once::new();
    let level = || -> PyResult<bool> {
        let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
        logger.call_method1("isEnabledFor", (DEBUG,))?.extract()
    };
    START.call_once(|| {
        let level = if level().unwrap_or(false) { LevelFilter::DEBUG } else { LevelFilter::INFO };
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = thread::Builder::new().name("springtide-log".into());
        if thread.spawn(move || forward(&receiver)).is_ok() {
            let listener = Registry::default().with(level).with(Queue(sender));
            // An error means that a program with an interpreter inside listens itself.
            let _ = tracing::subscriber::set_global_default(listener);
        }
    });
}

/// Gives messages to Python until there is no interpreter any more.
fn forward(messages: &Receiver<(i32, String)>) {
    let mut told_lost = 0;
    loop {
        let lines = match messages.recv_timeout(SUMMARY) {
            Ok((level, mut message)) => {
                let lost = lost();
                if lost > told_lost {
                    // Writing to a string does not fail.
                    let _ = write!(message, " ({} messages before it were lost)", lost - told_lost);
                    told_lost = lost;
                }
                vec![(level, message)]
            }
            Err(RecvTimeoutError::Timeout) => summary(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        for (level, line) in lines {
            let said = Python::try_attach(|py| -> PyResult<()> {
                let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
                logger.call_method1("log", (level, "%s", line))?;
                Ok(())
            });
            if said.is_none() {
                return;
            }
        }
    }
}

/// What was suppressed in storms that have ended.
fn summary() -> Vec<(i32, String)> {
    let due = LIMIT.limiter().due(LIMIT.clock.now());
    due.into_iter()
        .map(|(kind, more)| (WARNING, format!("{more} more suppressed: {kind}")))
        .collect()
}

struct Queue(SyncSender<(i32, String)>);

impl<S: Subscriber> Layer<S> for Queue {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        if !metadata.target().starts_with("springtide") {
            return;
        }
        let level = match *metadata.level() {
            Level::ERROR => ERROR,
            Level::WARN => WARNING,
            Level::INFO => INFO,
            _ if metadata.target() == ITEMS => DEBUG,
            _ => return,
        };
        let mut text = Text::default();
        event.record(&mut text);
        let Text { message, fields } = text;
        // Who asks for the ways of items wants all of them.
        let more = if level == DEBUG { Some(0) } else { admit(&message) };
        let line = match more {
            None => return,
            Some(0) => message + &fields,
            Some(more) => format!("{message}{fields} ({more} more suppressed)"),
        };
        if self.0.try_send((level, shown_within(&line, MESSAGE_MAX))).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An event in words.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, ", {name}: {value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.fields, ", {}: {value}", field.name());
    }
}
