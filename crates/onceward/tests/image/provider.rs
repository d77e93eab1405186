//! A service that speaks as much of the images protocol as is asked of it here, and does what the test says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_system_image::provider::{Order, Provider, Size};
use serde_json::json;

const JSON: &str = "application/json";

/// Where a picture is that is not in the answer.
const PICTURE: &str = "/pictures/1.png";

/// What it does with the next order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    Draw,
    /// Its safety filter objects.
    Refuse,
    /// It answers with this status.
    Fail(u16),
    /// It sends half of the picture and no more.
    Stall,
    /// It answers with an address of the picture, and whoever fetches it gets half of it and no more.
    Link,
    /// It does nothing until it is told something else.
    Hold,
}

/// What it is to do, and a bell for when that changes.
#[derive(Debug)]
struct Told(Mutex<Does>, Condvar);

impl Told {
    fn set(&self, what: Does) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.1.notify_all();
    }

    fn now(&self) -> Does {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *self.1.wait_while(told, |does| matches!(does, Does::Hold)).unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Service {
    address: String,
    does: Arc<Told>,
    /// Told when half of a picture is out.
    pub(crate) halfway: Receiver<()>,
}

impl Service {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let does = Arc::new(Told(Mutex::new(Does::Draw), Condvar::new()));
        let (half, halfway) = channel();
        let own = address.clone();
        let shared = Arc::clone(&does);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (does, half, own) = (Arc::clone(&shared), half.clone(), own.clone());
                std::thread::spawn(move || serve(stream, &own, &does, &half));
            }
        });
        Self { address, does, halfway }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn does(&self, what: Does) {
        self.does.set(what);
    }
}

/// One connection, for as long as it is kept.
fn serve(stream: TcpStream, own: &str, does: &Told, half: &Sender<()>) {
    let mut out = stream.try_clone().expect("a second handle");
    let mut from = BufReader::new(stream);
    while let Some((path, body)) = request(&mut from) {
        let sent = match does.now() {
            _ if path == PICTURE => {
                let sent = answer(&mut out, 200, "image/png", &picture("a lighthouse"), false);
                wait(&mut from, half);
                sent
            }
            _ if !path.ends_with("/images/generations") => panic!("{path}"),
            Does::Draw => answer(&mut out, 200, JSON, drawn(&body).as_bytes(), true),
            Does::Refuse => answer(&mut out, 400, JSON, error("content_policy_violation").as_bytes(), true),
            Does::Fail(status) => answer(&mut out, status, JSON, error("some_error").as_bytes(), true),
            Does::Link => {
                let link = json!({ "created": 1, "data": [{ "url": format!("http://{own}{PICTURE}") }] });
                answer(&mut out, 200, JSON, link.to_string().as_bytes(), true)
            }
            Does::Stall | Does::Hold => {
                let sent = answer(&mut out, 200, JSON, drawn(&body).as_bytes(), false);
                wait(&mut from, half);
                sent
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Until whoever waits for the rest is gone.
fn wait(from: &mut BufReader<TcpStream>, half: &Sender<()>) {
    let _ = half.send(());
    let _ = from.read(&mut [0]);
}

fn error(code: &str) -> String {
    json!({ "error": { "code": code, "message": "no", "type": "invalid_request_error" } }).to_string()
}

fn drawn(body: &[u8]) -> String {
    let asked: serde_json::Value = serde_json::from_slice(body).expect("JSON");
    let bytes = picture(asked["prompt"].as_str().expect("a prompt"));
    json!({ "created": 1, "data": [{ "b64_json": STANDARD.encode(bytes) }] }).to_string()
}

fn picture(prompt: &str) -> Vec<u8> {
    let order = Order { prompt: prompt.to_owned(), size: Size::S256 };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(Provider::Local.draw(&order)).expect("it is drawn").bytes.to_vec()
}

/// All of an answer, or its head and half of its body.
fn answer(out: &mut TcpStream, status: u16, kind: &str, body: &[u8], whole: bool) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
    out.write_all(head.as_bytes())?;
    let sent = if whole { body.len() } else { body.len() / 2 };
    out.write_all(&body[..sent])?;
    out.flush()
}

/// A request's path and its body; `None` when nobody asks any more.
fn request(from: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let (mut path, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        match (&path, line.split_once(':')) {
            (None, _) => path = Some(line.split(' ').nth(1)?.to_owned()),
            (_, Some((name, value))) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok()?;
            }
            _ => {}
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some((path?, body))
}
