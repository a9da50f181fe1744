//! One keep-alive HTTP/1.1 connection to the server.
//!
//! Why:        a benchmark must know which connection a request used and that it was warm; a pool hides both.
//! Invariants: N1 one request at a time; a request is sent twice only when the first attempt never left this process.
//! Not here:   signatures and S3 semantics (`client`).

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::error::ClientError;
use crate::payload::Payload;
use crate::target::Target;

#[derive(Debug)]
pub struct Connection {
    target: Arc<Target>,
    sender: Option<SendRequest<Payload>>,
}

impl Connection {
    /// A connection that is opened by its first request.
    pub fn new(target: Arc<Target>) -> Connection {
        Connection { target, sender: None }
    }

    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    async fn open(&self) -> Result<SendRequest<Payload>, ClientError> {
        let target = &self.target;
        let failed = |source| ClientError::Connect { address: target.authority.clone(), source };
        // Names below localhost are this machine (RFC 6761), and not every resolver knows that.
        let host = if target.host.ends_with(".localhost") { "localhost" } else { target.host.as_str() };
        let stream = TcpStream::connect((host, target.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        match &target.tls {
            None => self.shake_hands(stream).await,
            Some(tls) => self.shake_hands(tls.connect(stream).await.map_err(failed)?).await,
        }
    }

    async fn shake_hands<S>(&self, stream: S) -> Result<SendRequest<Payload>, ClientError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|source| self.broken(source))?;
        // The driver task ends with the connection; its error reaches the request in flight.
        tokio::spawn(async move {
            let _ = driver.await;
        });
        Ok(sender)
    }

    fn broken(&self, source: hyper::Error) -> ClientError {
        ClientError::Transport { address: self.target.authority.clone(), source }
    }

    /// Sends a request and waits for the response's head; connects first when there is no usable connection.
    pub async fn send(&mut self, request: Request<Payload>) -> Result<Response<Incoming>, ClientError> {
        let mut request = request;
        if let Some(mut sender) = self.sender.take()
            && sender.ready().await.is_ok()
        {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.sender = Some(sender);
                    return Ok(response);
                }
                Err(mut failure) => match failure.take_message() {
                    // The server had closed the idle connection; nothing was sent.
                    Some(unsent) => request = unsent,
                    None => return Err(self.broken(failure.into_error())),
                },
            }
        }
        let mut sender = self.open().await?;
        let response = sender.send_request(request).await.map_err(|source| self.broken(source))?;
        self.sender = Some(sender);
        Ok(response)
    }
}
