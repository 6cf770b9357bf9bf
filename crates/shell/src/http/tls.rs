//! The handshake of TLS, within a time.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use super::{Limits, patient};

/// Gives the configuration for the next connection.
pub type Configuration = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// Answers a client that speaks HTTP without TLS.
const PLAIN: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 53\r\n\
connection: close\r\n\r\nthis port speaks HTTPS: use https:// in the address.\n";
/// How long, and how much, is read of such a client, so that it reads the answer before the connection is reset.
const PLAIN_TIME: Duration = Duration::from_secs(1);
const PLAIN_BYTES: u64 = 64 << 10;

/// A stream of TLS, if the client finishes the handshake in time.
pub(super) async fn handshake(
    stream: TcpStream,
    configuration: Arc<ServerConfig>,
    limits: Limits,
) -> Option<TlsStream<Pin<Box<TimeoutStream<TcpStream>>>>> {
    let shaking = async {
        let mut first = [0];
        if stream.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        // TLS begins with a record of the handshake, 0x16, and HTTP with the name of a method.
        if first.first().is_some_and(u8::is_ascii_uppercase) {
            refuse(stream).await;
            return None;
        }
        TlsAcceptor::from(configuration).accept(patient(stream, limits)).await.ok()
    };
    timeout(limits.handshake, shaking).await.ok().flatten()
}

/// Says that this port speaks TLS.
async fn refuse(mut stream: TcpStream) {
    let refusing = async {
        stream.write_all(PLAIN).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(PLAIN_BYTES), &mut tokio::io::sink()).await
    };
    // A client that breaks off has no use for the answer.
    let _ = timeout(PLAIN_TIME, refusing).await;
}
