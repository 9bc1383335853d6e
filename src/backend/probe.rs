//! Whether somebody listens, before a call that would take seconds to find out.

use std::{
    io::{self, ErrorKind},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

/// Tries to connect to `HOST:PORT`, at each of the host's addresses for at most `timeout`. Blocks.
///
/// # Errors
/// The last address's error, or that of the name's resolution.
pub fn probe_tcp(address: &str, timeout: Duration) -> io::Result<()> {
    let none = || io::Error::new(ErrorKind::NotFound, "the name has no address");
    let mut result = Err(none());
    for address in address.to_socket_addrs()? {
        result = TcpStream::connect_timeout(&address, timeout).map(drop);
        if result.is_ok() {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_is_found_and_its_end_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let second = Duration::from_secs(1);
        probe_tcp(&address, second).unwrap();
        drop(listener);
        assert_eq!(probe_tcp(&address, second).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert!(probe_tcp("no port", second).is_err());
    }
}
