//! Tells systemd that the server is ready, as `Type=notify` units expect.
//!
//! Why:        mount units and other services that start after this one find it ready, even after a long start.
//! Layout:     one datagram to the socket that $NOTIFY_SOCKET names, see sd_notify(3).
//! Not here:   stopping (systemd sends SIGTERM).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Does nothing unless $NOTIFY_SOCKET is set.
pub(crate) fn tell() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(name.as_encoded_bytes(), b"READY=1") {
        tracing::warn!(%error, "cannot tell systemd that the server is ready");
    }
}

fn send(name: &[u8], message: &[u8]) -> io::Result<()> {
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    UnixDatagram::unbound()?.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str().as_bytes(), b"READY=1").unwrap();
        let mut bytes = [0; 16];
        let count = socket.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"READY=1");
        assert!(send(b"/no/such/socket", b"").is_err());
    }
}
