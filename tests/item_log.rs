//! The way of an item in the log: the same id from the encoder's tensor to the consumer's.

use std::{
    collections::BTreeSet,
    fmt,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use springtide::{
    backend::{DiskConfig, DiskStore},
    connector::{
        Availability, Config, HEADER_BYTES, ItemRequest, LoadConfig, LoadTarget, Namespace,
        NamespaceParts, Role, Scheduler, Worker,
    },
    env::{Clock, DType, Key},
    log::{ITEMS, ItemId, shown},
    pool::PoolConfig,
    runtime::{HostDevice, HostEvent, HostTensor, Runtime, TokioClock},
};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{Layer, Registry, layer::Context, prelude::*};

type DiskEnv = Runtime<DiskStore>;

/// Lines as `process span item message fields`.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<Line>>>);

#[derive(Clone, Debug, Default)]
struct Line {
    target: String,
    /// Of the event, or of a span that began.
    name: String,
    item: String,
    /// The names of the spans around it, with their items.
    spans: Vec<(String, String)>,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.name = format!("{value:?}"),
            "item" => self.item = format!("{value:?}"),
            name => self.fields += &format!(" {name}={value:?}"),
        }
    }
}

impl<S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>> Layer<S> for Captured {
    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        let mut line = Line::default();
        attributes.record(&mut line);
        context.span(id).unwrap().extensions_mut().insert(line);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Line { target: event.metadata().target().to_owned(), ..Line::default() };
        event.record(&mut line);
        for span in context.event_scope(event).into_iter().flatten() {
            let item = span.extensions().get::<Line>().unwrap().item.clone();
            line.spans.push((span.name().to_owned(), item));
        }
        self.0.lock().unwrap().push(line);
    }
}

impl Captured {
    /// What has come since the last call.
    fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A producer and a consumer that share a directory.
struct Pair {
    clock: TokioClock,
    namespace: Namespace,
    directory: tempfile::TempDir,
    producer: Worker<DiskEnv>,
    scheduler: Scheduler<DiskEnv>,
    consumer: Worker<DiskEnv>,
}

impl Pair {
    async fn start() -> Self {
        let temporary = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (clock, handle) = (TokioClock::new(), tokio::runtime::Handle::current());
        let parts = NamespaceParts {
            model: "springtide-item-log".into(),
            dtype: DType::Bf16,
            width: 8,
            ..NamespaceParts::default()
        };
        let directory = temporary.path().to_owned();
        let disk = DiskConfig { directory, capacity_bytes: 1 << 20, threads: 1 };
        let env = || {
            let store = DiskStore::open(&disk).unwrap();
            Runtime::new(handle.clone(), clock, store, HostDevice)
        };
        let config = |role| Config {
            role,
            namespace: parts.clone(),
            pool: PoolConfig::with_bytes(1 << 20),
            loads: LoadConfig { deadline: Duration::from_secs(60), ..LoadConfig::default() },
            ..Config::default()
        };
        let producer = Worker::start(env(), config(Role::Producer), None).await.unwrap();
        let env = env();
        let scheduler = Scheduler::start(env.clone(), config(Role::Consumer)).await.unwrap();
        let consumer =
            Worker::start(env, config(Role::Consumer), scheduler.mapper()).await.unwrap();
        let namespace = Namespace::new(&parts);
        Self { clock, namespace, directory: temporary, producer, scheduler, consumer }
    }

    fn tensor(&self, rows: u64) -> HostTensor {
        let spec = self.namespace.spec(rows).unwrap();
        HostTensor::new(spec, vec![3; spec.bytes() as usize]).unwrap()
    }

    async fn save(&self, identifier: &str, tensor: HostTensor) -> String {
        self.producer.save(identifier, tensor, HostEvent::ready());
        let deadline = self.clock.now() + Duration::from_secs(60);
        self.producer.wait_for_save(deadline).await.to_string()
    }

    /// Whether the item came.
    async fn load(&self, request: &str, identifier: &str, rows: u64) -> bool {
        let items = [ItemRequest { identifier: identifier.into(), rows }];
        while self.scheduler.ensure_available(request, &items) == Availability::Wait {
            self.clock.sleep(Duration::from_millis(1)).await;
        }
        let has_item = self.scheduler.has_item(identifier);
        self.scheduler.allocated(request, identifier);
        for order in self.scheduler.build_step(&[]).orders {
            let (id, tensor) = (order.id, HostTensor::zeros(order.spec));
            let target = LoadTarget { order, tensor, free: HostEvent::ready() };
            assert_eq!(self.consumer.load(vec![target]).await[0].result, Ok(()));
            self.scheduler.acknowledge(0, &[id]);
        }
        self.scheduler.request_finished(request);
        has_item
    }
}

/// Changes the last byte of every object below a directory; how many there are.
fn damage(directory: &Path) -> usize {
    let mut objects = 0;
    for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            objects += damage(&path);
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.len() as u64 > HEADER_BYTES {
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(&path, bytes).unwrap();
            objects += 1;
        }
    }
    objects
}

/// Names of the lines of one item.
fn steps(lines: &[Line], item: &str) -> Vec<String> {
    let of_item = lines.iter().filter(|line| line.target == ITEMS && line.item == item);
    of_item.map(|line| line.name.clone()).collect()
}

#[tokio::test(flavor = "current_thread")]
async fn one_id_leads_from_the_encoder_to_the_consumer() {
    let captured = Captured::default();
    let _guard = tracing::subscriber::set_default(Registry::default().with(captured.clone()));
    let pair = Pair::start().await;
    let hostile = "image\n2026-12-01 ERROR forged \u{1b}[2J";

    assert_eq!(pair.save(hostile, pair.tensor(4)).await, "1 stored");
    let producer = captured.take();
    let id = ItemId::of(&pair.namespace.key(hostile)).to_string();
    let expected = ["queued", "copied", "put", "probed", "committed"];
    let got = steps(&producer, &id);
    assert_eq!(got.iter().filter(|step| *step != "looked up").collect::<Vec<_>>(), expected);

    assert!(pair.load("request\n1", hostile, 4).await);
    let consumer = captured.take();
    let expected = ["asked for", "looked up", "fetched", "ready", "ordered", "delivered"];
    assert_eq!(steps(&consumer, &id), expected);

    for line in producer.iter().chain(&consumer) {
        assert!(!format!("{} {}", line.name, line.fields).contains(['\n', '\u{1b}']), "{line:?}");
        for (_, item) in &line.spans {
            assert_eq!(*item, line.item, "{line:?}");
        }
    }
    let spans = producer.iter().chain(&consumer).flat_map(|line| &line.spans);
    let names: BTreeSet<&str> = spans.map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["save", "load", "deliver"]));
}

#[tokio::test(flavor = "current_thread")]
async fn what_is_not_shared_has_its_reason() {
    let captured = Captured::default();
    let _guard = tracing::subscriber::set_default(Registry::default().with(captured.clone()));
    let pair = Pair::start().await;
    let reason = |identifier: &str, name: &str| {
        let id = ItemId::of(&pair.namespace.key(identifier)).to_string();
        let lines = captured.take();
        let line = lines.iter().find(|line| line.item == id && line.name == name);
        line.unwrap_or_else(|| panic!("no {name} of {id} in {lines:?}")).fields.clone()
    };

    assert_eq!(pair.save("huge", pair.tensor(1 << 17)).await, "1 dropped(too_large)");
    assert!(reason("huge", "not saved").contains("reason=dropped(too_large)"));

    assert!(!pair.load("request-1", "nowhere", 4).await);
    assert!(reason("nowhere", "missed").contains("request=request-1 reason=absent"));

    // Somebody writes another item's bytes over it.
    pair.save("bad", pair.tensor(4)).await;
    captured.take();
    assert_eq!(damage(pair.directory.path()), 1);
    assert!(!pair.load("request-2", "bad", 4).await);
    let missed = reason("bad", "missed");
    assert!(missed.contains("reason=rejected checksum"), "{missed}");
}

#[test]
fn names_from_outside_stay_on_their_line() {
    assert_eq!(shown("plain_name-1.png"), "plain_name-1.png");
    let forged = shown("a\r\nWARN the store is down\u{202e}\0");
    assert!(forged.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{forged}");
    assert_eq!(shown(&"\n".repeat(10_000)).chars().count(), 97);
    assert_ne!(ItemId::of(&Key::new("a")), ItemId::of(&Key::new("b")));
}
