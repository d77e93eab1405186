//! A real HTTP server on the loopback interface, controlled by a test.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use onceward_engine::{HttpTransport, HttpTransportConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A transport that may deliver to the receivers of this module, which listen on loopback.
pub(crate) fn loopback_transport() -> HttpTransport {
    HttpTransport::new(loopback_config())
}

pub(crate) fn loopback_config() -> HttpTransportConfig {
    let allowed_targets = ["127.0.0.0/8", "localhost"].map(|target| target.parse().expect("a target"));
    HttpTransportConfig { allowed_targets: allowed_targets.into_iter().collect(), ..HttpTransportConfig::default() }
}

#[derive(Clone, Debug)]
pub(crate) enum ReceiverReaction {
    Answer(u16),
    /// With an additional header.
    AnswerWithHeader(u16, &'static str),
    /// Never answers.
    Hang,
    /// Closes the connection without an answer.
    Close,
    /// 200 with an endless body.
    Flood,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedCall {
    pub(crate) idempotency_key: String,
    pub(crate) webhook_id: String,
    pub(crate) timestamp: String,
    pub(crate) signatures: String,
    pub(crate) attempt: String,
    pub(crate) body: String,
}

#[derive(Debug, Default)]
struct ReceiverState {
    calls: Vec<ReceivedCall>,
    /// The next reactions; then 200.
    reactions: VecDeque<ReceiverReaction>,
}

#[derive(Clone, Debug)]
pub(crate) struct HttpReceiver {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<ReceiverState>>,
    call_received: Arc<Notify>,
}

impl HttpReceiver {
    pub(crate) async fn start(reactions: impl IntoIterator<Item = ReceiverReaction>) -> Self {
        Self::with_listener(TcpListener::bind("127.0.0.1:0").await.expect("a port"), reactions)
    }

    pub(crate) fn with_listener(listener: TcpListener, reactions: impl IntoIterator<Item = ReceiverReaction>) -> Self {
        let state = ReceiverState { calls: Vec::new(), reactions: reactions.into_iter().collect() };
        let address = listener.local_addr().expect("bound");
        let receiver = Self { address, state: Arc::new(Mutex::new(state)), call_received: Arc::default() };
        let own = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(own.clone().serve(stream));
            }
        });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) fn received_calls(&self) -> Vec<ReceivedCall> {
        self.state.lock().unwrap().calls.clone()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.received_calls().into_iter().map(|call| call.body).collect()
    }

    pub(crate) async fn wait_for(&self, calls: usize) {
        let waiting = async {
            loop {
                let call_received = self.call_received.notified();
                if self.received_calls().len() >= calls {
                    return;
                }
                call_received.await;
            }
        };
        tokio::time::timeout(super::TEST_TIMEOUT, waiting).await.expect("no timeout");
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut read = Vec::new();
        let (head, body) = loop {
            let mut part = [0; 4_096];
            match stream.read(&mut part).await {
                Ok(0) | Err(_) => return,
                Ok(length) => read.extend_from_slice(&part[..length]),
            }
            let text = String::from_utf8_lossy(&read).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length: usize = header_value(head, "content-length").parse().expect("a length");
                if body.len() >= length {
                    break (head.to_owned(), body.to_owned());
                }
            }
        };
        assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
        let call = ReceivedCall {
            idempotency_key: header_value(&head, "idempotency-key"),
            webhook_id: header_value(&head, "webhook-id"),
            timestamp: header_value(&head, "webhook-timestamp"),
            signatures: header_value(&head, "webhook-signature"),
            attempt: header_value(&head, "onceward-attempt"),
            body,
        };
        let reaction = {
            let mut state = self.state.lock().unwrap();
            state.calls.push(call);
            state.reactions.pop_front().unwrap_or(ReceiverReaction::Answer(200))
        };
        self.call_received.notify_waiters();
        let answer = match reaction {
            ReceiverReaction::Answer(status) => format!("HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n"),
            ReceiverReaction::AnswerWithHeader(status, header) => {
                format!("HTTP/1.1 {status} So\r\n{header}\r\nContent-Length: 0\r\n\r\n")
            }
            ReceiverReaction::Hang => return std::future::pending().await,
            ReceiverReaction::Close => return,
            ReceiverReaction::Flood => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                while stream.write_all(&[b'x'; 8_192]).await.is_ok() {}
                return;
            }
        };
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

fn header_value(head: &str, name: &str) -> String {
    let value_of = |line: &str| {
        let (own, value) = line.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    };
    head.lines().find_map(value_of).unwrap_or_default()
}
