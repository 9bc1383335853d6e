//! What the connector reports, as messages of Python's `logging`.
//!
//! vLLM shows what loggers below `vllm` say. Whoever reports here must not wait for the interpreter, so
//! messages go through a bounded queue to a thread that does; what does not fit is lost, and counted.

use std::{
    fmt::{Debug, Write},
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use pyo3::prelude::*;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, Registry, layer::Context, prelude::*};

/// The logger's name.
const LOGGER: &str = "vllm.springtide";

/// Messages that wait for the interpreter.
const QUEUE: usize = 256;

static LOST: AtomicU64 = AtomicU64::new(0);

/// Sends what this crate and the connector report to Python, from now on. Does nothing the second time, or
/// where somebody else listens already.
pub fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = thread::Builder::new().name("springtide-log".into());
        if thread.spawn(move || forward(&receiver)).is_ok() {
            // An error means that a program with an interpreter inside listens itself.
            let _ =
                tracing::subscriber::set_global_default(Registry::default().with(Queue(sender)));
        }
    });
}

/// Gives messages to Python until there is no interpreter any more.
fn forward(messages: &Receiver<(i32, String)>) {
    for (level, mut message) in messages {
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            // Writing to a string does not fail.
            let _ = write!(message, " ({lost} messages before it were lost)");
        }
        let said = Python::try_attach(|py| -> PyResult<()> {
            let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
            logger.call_method1("log", (level, "%s", message))?;
            Ok(())
        });
        if said.is_none() {
            return;
        }
    }
}

struct Queue(SyncSender<(i32, String)>);

impl<S: Subscriber> Layer<S> for Queue {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        if !metadata.target().starts_with("springtide") {
            return;
        }
        let level = match *metadata.level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            _ => return,
        };
        let mut text = Text::default();
        event.record(&mut text);
        if self.0.try_send((level, text.message + &text.fields)).is_err() {
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
