//! Somebody outside: a real HTTP server on the loopback interface, which does what a test tells it to.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What to do with one call.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    Answer(u16),
    /// With a header of its own.
    With(u16, &'static str),
    /// Never answer.
    Hang,
    /// Go away without an answer.
    Close,
    /// 200, and a body without end.
    Flood,
}

/// A call as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) key: String,
    pub(crate) attempt: String,
    pub(crate) body: String,
}

#[derive(Debug, Default)]
struct Inside {
    came: Vec<Came>,
    /// What to do next; then 200.
    reactions: VecDeque<Reaction>,
}

#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    inside: Arc<Mutex<Inside>>,
    news: Arc<Notify>,
}

impl Receiver {
    pub(crate) async fn start(reactions: impl IntoIterator<Item = Reaction>) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").await.expect("a port"), reactions)
    }

    pub(crate) fn at(listener: TcpListener, reactions: impl IntoIterator<Item = Reaction>) -> Self {
        let inside = Inside { came: Vec::new(), reactions: reactions.into_iter().collect() };
        let address = listener.local_addr().expect("bound");
        let receiver = Self { address, inside: Arc::new(Mutex::new(inside)), news: Arc::default() };
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

    pub(crate) fn came(&self) -> Vec<Came> {
        self.inside.lock().unwrap().came.clone()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.came().into_iter().map(|came| came.body).collect()
    }

    /// Waits until so many calls have come.
    pub(crate) async fn wait_for(&self, calls: usize) {
        let waiting = async {
            loop {
                let news = self.news.notified();
                if self.came().len() >= calls {
                    return;
                }
                news.await;
            }
        };
        tokio::time::timeout(super::LONG, waiting).await.expect("in time");
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
                let length: usize = header(head, "content-length").parse().expect("a length");
                if body.len() >= length {
                    break (head.to_owned(), body.to_owned());
                }
            }
        };
        assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
        let came = Came { key: header(&head, "idempotency-key"), attempt: header(&head, "onceward-attempt"), body };
        let reaction = {
            let mut inside = self.inside.lock().unwrap();
            inside.came.push(came);
            inside.reactions.pop_front().unwrap_or(Reaction::Answer(200))
        };
        self.news.notify_waiters();
        let answer = match reaction {
            Reaction::Answer(status) => format!("HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n"),
            Reaction::With(status, header) => format!("HTTP/1.1 {status} So\r\n{header}\r\nContent-Length: 0\r\n\r\n"),
            Reaction::Hang => return std::future::pending().await,
            Reaction::Close => return,
            Reaction::Flood => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                while stream.write_all(&[b'x'; 8_192]).await.is_ok() {}
                return;
            }
        };
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

fn header(head: &str, name: &str) -> String {
    let of = |line: &str| {
        let (own, value) = line.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    };
    head.lines().find_map(of).unwrap_or_default()
}
