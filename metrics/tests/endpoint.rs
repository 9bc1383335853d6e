//! The endpoint over loopback: what it answers, and what it does not let happen.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use springtide::{connector::SaveCounters, env::Clock, runtime::TokioClock};
use springtide_metrics::{Endpoint, Saves, Serving, Snapshot, exposition};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Handle,
};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Longer than any answer takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// An endpoint that serves one counter.
fn start(listen: SocketAddr) -> (io::Result<Endpoint>, Arc<AtomicU64>) {
    let stored = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&stored);
    let look = move || {
        let stored = count.load(Ordering::Relaxed);
        let counters = SaveCounters { opened: stored, stored, ..SaveCounters::default() };
        let saves = Saves { counters, ..Saves::default() };
        Snapshot { saves: Some(saves), ..Snapshot::default() }
    };
    let registry = exposition::registry(Arc::new(look), &[("process", "test".into())]);
    let serving = Serving { registry, health: Box::new(|| "store up".into()) };
    (Endpoint::start(listen, serving, TokioClock::new(), &Handle::current()), stored)
}

/// All that the endpoint says to these bytes.
async fn say(address: SocketAddr, bytes: &[u8]) -> String {
    let clock = TokioClock::new();
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await?;
        io::Result::Ok(String::from_utf8_lossy(&said).into_owned())
    };
    let said = clock.timeout_at(clock.now() + LIMIT, exchange).await;
    // A connection that is reset has said nothing.
    said.expect("an end within the limit").unwrap_or_default()
}

async fn get(address: SocketAddr, path: &str) -> String {
    say(address, format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_serves_what_is_counted_now() {
    let (endpoint, stored) = start(ANY);
    let endpoint = endpoint.expect("a free port");
    assert!(endpoint.address().ip().is_loopback());
    for count in [0, 7] {
        stored.store(count, Ordering::Relaxed);
        let said = get(endpoint.address(), "/metrics").await;
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
        assert!(said.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        let labels = "process=\"test\",outcome=\"stored\",reason=\"none\"";
        let line = format!("\nspringtide_saves_total{{{labels}}} {count}\n");
        assert!(said.contains(&line), "{said}");
    }
    let said = get(endpoint.address(), "/healthz").await;
    assert!(said.ends_with("\r\n\r\nok\nstore up\n"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_does_not_serve_it_says() {
    let (endpoint, _) = start(ANY);
    let address = endpoint.as_ref().expect("a free port").address();
    assert!(get(address, "/").await.starts_with("HTTP/1.1 404 "));
    let said =
        say(address, b"POST /metrics HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n").await;
    assert!(said.starts_with("HTTP/1.1 405 ") && said.contains("allow: GET, HEAD\r\n"), "{said}");
    let head = say(address, b"HEAD /metrics HTTP/1.1\r\nHost: here\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(say(address, b"\x16\x03\x01 no HTTP\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
    let said = say(address, long.as_bytes()).await;
    assert!(!said.starts_with("HTTP/1.1 2"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_say_nothing_are_hung_up_on_and_hold_up_nobody_for_good() {
    let (endpoint, _) = start(ANY);
    let address = endpoint.as_ref().expect("a free port").address();
    let mut silent = Vec::new();
    for _ in 0..9 {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").await.expect("writable");
        silent.push(stream);
    }
    // All places are taken; they become free when the heads do not come.
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
    for mut stream in silent {
        let clock = TokioClock::new();
        let mut said = Vec::new();
        let end = clock.timeout_at(clock.now() + LIMIT, stream.read_to_end(&mut said)).await;
        assert!(end.is_ok(), "hung up on");
        assert!(!String::from_utf8_lossy(&said).starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_an_error_and_a_dropped_endpoint_gives_its_port_back() {
    let (first, _) = start(ANY);
    let first = first.expect("a free port");
    let address = first.address();
    let (second, _) = start(address);
    assert_eq!(second.expect_err("in use").kind(), io::ErrorKind::AddrInUse);
    drop(first);
    let clock = TokioClock::new();
    let deadline = clock.now() + LIMIT;
    while start(address).0.is_err() {
        assert!(clock.now() < deadline, "the port is not given back");
        clock.sleep(Duration::from_millis(10)).await;
    }
}
