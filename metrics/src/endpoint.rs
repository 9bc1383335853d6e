//! `GET /metrics` and `GET /healthz` over HTTP/1.1.
//!
//! For a scraper in the neighbourhood, not for the world: no encryption, no names. A connection carries one
//! request and ends by a deadline; few are served at a time, and further ones wait in the listener's queue.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes},
    header::{ALLOW, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use springtide::{env::Clock, runtime::TokioClock};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
};

use crate::exposition;

/// Connections that are served at a time.
const CONNECTIONS_MAX: usize = 8;

/// How long a request's head may take.
const HEAD_LIMIT: Duration = Duration::from_secs(5);

/// How long a connection may take.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);

/// Bytes and fields of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
const FIELDS_MAX: usize = 64;

/// Between two attempts to accept, when the process has no file descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// What an endpoint serves.
pub struct Serving {
    /// The metrics.
    pub registry: Registry,
    /// What `/healthz` says beside `ok`: one line.
    pub health: Box<dyn Fn() -> String + Send + Sync>,
}

/// An endpoint that listens, until it is dropped.
///
/// ```
/// use std::{io::{Read, Write}, net::TcpStream, sync::Arc};
///
/// use springtide::runtime::TokioClock;
/// use springtide_metrics::{Endpoint, Serving, Snapshot, exposition::registry};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
/// // With a connector: `Snapshot::of_worker(&worker)` or `Snapshot::of_scheduler(&scheduler)`.
/// let look = Arc::new(|| Snapshot { saves: Some(Default::default()), ..Snapshot::default() });
/// let serving = Serving { registry: registry(look, &[]), health: Box::new(|| "store up".into()) };
/// let endpoint =
///     Endpoint::start("127.0.0.1:0".parse()?, serving, TokioClock::new(), runtime.handle())?;
///
/// let mut scraper = TcpStream::connect(endpoint.address())?;
/// scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
/// let mut answer = String::new();
/// scraper.read_to_string(&mut answer)?;
/// assert!(answer.contains("springtide_saves_opened_total 0\n"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl Endpoint {
    /// Binds `listen` and serves on `handle`. Port 0 is any free port.
    ///
    /// # Errors
    /// As the operating system refuses the address, such as a port in use.
    pub fn start(
        listen: SocketAddr,
        serving: Serving,
        clock: TokioClock,
        handle: &Handle,
    ) -> io::Result<Self> {
        let listener = StdListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let _runtime = handle.enter();
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let accepting = handle.spawn(accept(listener, Arc::new(serving), clock, handle.clone()));
        Ok(Self { address, accepting: accepting.abort_handle() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, serving: Arc<Serving>, clock: TokioClock, handle: Handle) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // It is never closed, so there always comes a place.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                drop(handle.spawn(serve(stream, Arc::clone(&serving), clock, place)));
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to the metrics endpoint was not accepted");
                clock.sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(
    stream: TcpStream,
    serving: Arc<Serving>,
    clock: TokioClock,
    _place: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request| {
        let response = answer(&request, &serving);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(FIELDS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // However it ends, there is nobody to tell.
    let _ = clock.timeout_at(clock.now() + CONNECTION_LIMIT, connection).await;
}

/// The response to a request. What a request's body says does not matter.
fn answer<B: Body>(request: &Request<B>, serving: &Serving) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "expected GET or HEAD\n".into());
        refusal.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("a valid field"));
        return refusal;
    }
    match request.uri().path() {
        "/metrics" => match exposition::encode(&serving.registry) {
            Ok(text) => respond(StatusCode::OK, exposition::CONTENT_TYPE, text),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics: {error}\n")),
        },
        "/healthz" => plain(StatusCode::OK, format!("ok\n{}\n", (serving.health)())),
        _ => plain(StatusCode::NOT_FOUND, "expected /metrics or /healthz\n".into()),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", text)
}

fn respond(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind.parse().expect("a valid field"));
    response
}
