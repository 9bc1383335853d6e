//! The network in memory: what it delivers, when, and to whom.

use std::{future::Future, io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Builder,
    time::Instant,
};

use super::*;

const LATENCY: u64 = 3;

/// Runs `test` beside the carrier, over a network of three hosts; it has a minute of simulated time.
fn over<F: Future<Output = ()>>(test: impl FnOnce(Net) -> F) {
    let hosts = ["a", "b", "c"].map(str::to_owned);
    let net = Net::new(&hosts, Duration::from_millis(LATENCY));
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let carrier = net.clone();
        let end = Instant::now() + Duration::from_secs(60);
        tokio::select! {
            biased;
            () = test(net) => {}
            () = carrier.carry(end) => panic!("the test has not ended within its minute"),
        }
    });
}

async fn after(ms: u64) {
    sleep_until(Instant::now() + Duration::from_millis(ms)).await;
}

/// A connection from host `a` to host `b`, the asking end first.
async fn connected(net: &Net) -> (MemoryStream, MemoryStream, MemoryListener) {
    let listener = net.of("b").bind(80).unwrap();
    let a = net.of("a");
    let (client, (server, peer, _)) = tokio::join!(a.connect("b", 80), listener.accept());
    assert_eq!(peer, "a");
    (client.unwrap(), server, listener)
}

/// How long `future` takes, in milliseconds, and what comes of it.
async fn timed<T>(future: impl Future<Output = T>) -> (u64, T) {
    let begun = Instant::now();
    let result = future.await;
    (begun.elapsed().as_millis() as u64, result)
}

/// Whether `future` is still pending after `ms`.
async fn waits<T>(ms: u64, future: impl Future<Output = T>) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = after(ms) => true,
    }
}

#[test]
fn bytes_arrive_in_order_after_the_latency() {
    over(|net| async move {
        let (mut client, mut server, _listener) = connected(&net).await;
        client.write_all(b"one").await.unwrap();
        client.write_all(b"two").await.unwrap();
        let mut read = [0; 6];
        let (took, result) = timed(server.read_exact(&mut read)).await;
        result.unwrap();
        assert_eq!((took, &read), (LATENCY, b"onetwo"));
        client.shutdown().await.unwrap();
        let (took, rest) = timed(server.read(&mut read)).await;
        assert_eq!((took, rest.unwrap()), (LATENCY, 0));
        // The other way is still open.
        server.write_all(b"x").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'x');
    });
}

#[test]
fn nobody_listens_and_no_such_host() {
    over(|net| async move {
        let (took, refused) = timed(net.of("a").connect("b", 80)).await;
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(took, LATENCY);
        let unknown = net.of("a").connect("z", 80).await;
        assert_eq!(unknown.unwrap_err().kind(), io::ErrorKind::NotFound);
        let _first = net.of("b").bind(80).unwrap();
        assert_eq!(net.of("b").bind(80).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_ne!(net.of("b").bind(0).unwrap().port(), 0);
    });
}

#[test]
fn the_end_of_a_stream_is_seen_and_unread_bytes_make_it_a_reset() {
    over(|net| async move {
        let (mut client, server, _listener) = connected(&net).await;
        drop(server);
        assert_eq!(client.read(&mut [0; 4]).await.unwrap(), 0);
        // What is sent to an end that is gone comes back as a reset.
        client.write_all(b"late").await.unwrap();
        after(2 * LATENCY + 1).await;
        let error = client.write_all(b"later").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    });
    over(|net| async move {
        let (mut client, server, _listener) = connected(&net).await;
        client.write_all(b"unread").await.unwrap();
        after(LATENCY + 1).await;
        drop(server);
        let error = client.read(&mut [0; 4]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_cut_loses_what_is_under_way_and_the_stream_never_gets_over_it() {
    over(|net| async move {
        let (mut client, mut server, _listener) = connected(&net).await;
        client.write_all(b"lost").await.unwrap();
        net.cut("a", "b");
        client.write_all(b"lost, too").await.unwrap();
        // The way back is whole.
        server.write_all(b"y").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'y');
        net.mend("a", "b");
        client.write_all(b"behind a hole").await.unwrap();
        assert!(waits(1_000, server.read_u8()).await);
    });
}

#[test]
fn a_hold_keeps_what_is_under_way_until_it_ends() {
    over(|net| async move {
        let (mut client, mut server, _listener) = connected(&net).await;
        client.write_all(b"1").await.unwrap();
        net.hold("a", "b");
        client.write_all(b"2").await.unwrap();
        assert!(waits(500, server.read_u8()).await);
        net.release("a", "b");
        let (took, first) = timed(server.read_u8()).await;
        assert_eq!((took, first.unwrap()), (0, b'1'));
        assert_eq!(server.read_u8().await.unwrap(), b'2');
    });
}

#[test]
fn a_slower_link_delays_what_is_sent_from_then_on_and_order_is_kept() {
    over(|net| async move {
        let (mut client, mut server, _listener) = connected(&net).await;
        net.set_latency("a", "b", Duration::from_millis(40));
        client.write_all(b"1").await.unwrap();
        net.set_latency("a", "b", Duration::from_millis(1));
        // Overtakes the first on the way, but not in the stream.
        client.write_all(b"2").await.unwrap();
        let mut read = [0; 2];
        let (took, result) = timed(server.read_exact(&mut read)).await;
        result.unwrap();
        assert_eq!((took, &read), (40, b"12"));
    });
}

#[test]
fn what_is_sent_to_a_host_that_is_down_is_refused_when_it_comes_up() {
    over(|net| async move {
        let (mut client, server, listener) = connected(&net).await;
        drop(server);
        net.stop("b");
        drop(listener);
        // The dying stream still said that it ended.
        assert_eq!(client.read(&mut [0; 4]).await.unwrap(), 0);
        let a = net.of("a");
        let mut connecting = Box::pin(a.connect("b", 80));
        assert!(waits(500, connecting.as_mut()).await);
        client.write_all(b"anybody?").await.unwrap();
        after(100).await;
        net.restart("b");
        assert_eq!(connecting.await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        after(LATENCY + 1).await;
        assert_eq!(client.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        // Its next life can be reached.
        connected(&net).await;
    });
}

#[test]
fn a_client_that_has_given_up_is_not_accepted() {
    over(|net| async move {
        let listener = net.of("b").bind(80).unwrap();
        let a = net.of("a");
        assert!(waits(LATENCY + 1, a.connect("b", 80)).await);
        assert!(waits(100, listener.accept()).await);
        let c = net.of("c");
        let (client, (_, peer, _)) = tokio::join!(c.connect("b", 80), listener.accept());
        client.unwrap();
        assert_eq!(peer, "c");
        // One that still asks when the listener goes is refused.
        let a = net.of("a");
        let mut asking = Box::pin(a.connect("b", 80));
        assert!(waits(LATENCY + 1, asking.as_mut()).await);
        drop(listener);
        assert_eq!(asking.await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    });
}
