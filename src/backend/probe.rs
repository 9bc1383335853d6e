//! Whether a server answers, before a call that would take seconds or minutes to find out.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

/// Connects to `HOST:PORT` and waits for a sign of life: an answer to a byte that is no request, or that the
/// server closes the connection because of it, as Mooncake's master does within a millisecond. A server that
/// accepts connections and does nothing more (a stopped process: the kernel accepts for it) is dead, too.
/// Blocks for at most twice `timeout` at each of the host's addresses.
///
/// # Errors
/// The last address's error, or that of the name's resolution.
pub fn probe_server(address: &str, timeout: Duration) -> io::Result<()> {
    let mut result = Err(io::Error::new(ErrorKind::NotFound, "the name has no address"));
    for address in address.to_socket_addrs()? {
        result = probe(address, timeout);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn probe(address: SocketAddr, timeout: Duration) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    // A server that has closed already has answered.
    let _ = stream.write_all(&[0]);
    match stream.read(&mut [0]) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            let text = format!("it accepts connections but says nothing for {timeout:?}");
            Err(io::Error::new(ErrorKind::TimedOut, text))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    #[test]
    fn a_server_that_answers_or_hangs_up_lives() {
        for answer in [&b"hello"[..], b""] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let serve = move || listener.accept().unwrap().0.write_all(answer).unwrap();
            let server = thread::Builder::new().spawn(serve).unwrap();
            probe_server(&address, Duration::from_secs(30)).unwrap();
            server.join().unwrap();
        }
    }

    #[test]
    fn one_that_is_not_there_or_only_accepts_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let silent = probe_server(&address, Duration::from_millis(20)).unwrap_err();
        assert_eq!(silent.to_string(), "it accepts connections but says nothing for 20ms");
        drop(listener);
        let refused = probe_server(&address, Duration::from_secs(1)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(probe_server("no port", Duration::from_secs(1)).is_err());
    }
}
