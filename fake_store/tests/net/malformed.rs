//! Peers that send nonsense: they lose their connection, and nobody else notices.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;

/// Sends bytes and waits until the server ends the connection.
async fn send_nonsense(address: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    // A reset is as good an end as any.
    let _ended = stream.read_to_end(&mut rest).await;
}

#[tokio::test]
async fn nonsense_costs_its_own_connection() {
    let bed = Bed::new().await;
    bed.put("k", b"bytes").await;
    let nonsense: [&[u8]; 6] = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xFF; 64],
        // A frame of 16 MiB is announced, nothing follows.
        &[0, 0, 0, 1],
        // A frame of 3 bytes with an unknown call.
        &[3, 0, 0, 0, 1, 0x7F, 0],
        // A whole message and one byte more.
        &[3, 0, 0, 0, 1, 12, 0],
    ];
    for bytes in nonsense {
        for address in [&bed.master.address, &bed.a.address] {
            send_nonsense(address, bytes).await;
        }
    }
    assert_eq!(bed.get("k", 5).await.unwrap(), b"bytes");
    assert_eq!(bed.put("j", b"bytes").await, 0);
}

/// A server that answers nonsense is a failed call, no panic and no wait.
#[tokio::test]
async fn nonsense_from_a_server_is_a_failed_call() {
    let bed = Bed::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    spawner()(Box::pin(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&[3, 0, 0, 0, 9, 9, 9]).await.unwrap();
            spawner()(Box::pin(async move {
                let mut bytes = [0; 64];
                while stream.read(&mut bytes).await.is_ok_and(|n| n > 0) {}
            }));
        }
    }));
    let net = NetConfig { master: address, ..NetConfig::default() };
    let transport = NetTransport::new(TokioNetwork, bed.clock, net, Vec::new());
    let config = ClientConfig::new(ClientId(9), "c:9");
    let client = Client::new(transport, bed.clock, spawner(), bed.faults.clone(), config);
    assert_eq!(put(&client, &bed.pool, "k", b"bytes").await, -900);
}
