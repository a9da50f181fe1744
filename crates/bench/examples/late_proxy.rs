//! A TCP proxy that delivers all bytes half a round trip later, in both directions: a far server on this machine.
//!
//! Why:      clients of a far store wait; bytes of one connection keep their order, and the rate is not limited.
//!           `cargo run --release -p margay-bench --example late_proxy -- 127.0.0.1:9001 127.0.0.1:9000 10` adds 10 ms.
//! Not here: losses, limits of a rate.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Of one read.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks on their way in one direction.
const CHUNKS_MAX: usize = 4096;

async fn deliver(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, late: Duration) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let writes = tokio::spawn(async move {
        while let Some((at, bytes)) = receiver.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        // The other side may have closed it.
        let _ = to.shutdown().await;
    });
    loop {
        let mut bytes = Vec::with_capacity(CHUNK_BYTES);
        match from.read_buf(&mut bytes).await {
            Ok(read) if read > 0 => {}
            _ => break,
        }
        if sender.send((Instant::now() + late, bytes)).await.is_err() {
            break;
        }
    }
    drop(sender);
    // It ends when all is delivered.
    let _ = writes.await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [listen, server, round_trip] = words.as_slice() else { return Err("LISTEN SERVER MILLISECONDS".into()) };
    let late = Duration::from_secs_f64(round_trip.parse::<f64>()? / 2000.0);
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (client, _) = listener.accept().await?;
        let server = server.clone();
        tokio::spawn(async move {
            let Ok(upstream) = TcpStream::connect(server).await else { return };
            // A delay of their own would add to ours.
            let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
            let ((client_read, client_write), (server_read, server_write)) =
                (client.into_split(), upstream.into_split());
            tokio::join!(deliver(client_read, server_write, late), deliver(server_read, client_write, late));
        });
    }
}
