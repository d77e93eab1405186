//! One connection: a request read, an answer written, both by hand, since most answers are ones that no library writes.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::answer::{Answer, Refusal};
use super::{Asked, Heard, Pictures, Shared};

/// Between the bytes of a body that drips.
const DRIP: Duration = Duration::from_millis(20);

pub(super) fn serve(stream: &TcpStream, own: SocketAddr, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(heard) = request(&mut reader)? else { return Ok(()) };
    let (asked, prompt) = (heard.asked, heard.body.clone());
    let answer = shared.answer(heard);
    write(stream, &answer, &Question { asked, own, said: prompt }, shared)
}

/// What an answer depends on.
struct Question {
    asked: Asked,
    own: SocketAddr,
    said: Value,
}

fn request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Heard>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let asked = match path.as_str() {
        "/v1/images/generations" => Asked::Drawing,
        "/v1/moderations" => Asked::Moderation,
        path if path.starts_with("/pictures/") => Asked::Download,
        _ => return Ok(None),
    };
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Heard { asked, path, headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }))
}

fn write(mut stream: &TcpStream, answer: &Answer, question: &Question, shared: &Shared) -> io::Result<()> {
    let (content_type, body) = well(question);
    let half = body.len() / 2;
    match answer {
        Answer::Well => whole(stream, content_type, &body),
        Answer::Link => whole(stream, content_type, &linked(&format!("http://{}/pictures/1.png", question.own))),
        Answer::LinkTo(address) => whole(stream, content_type, &linked(address)),
        Answer::Flagged => {
            whole(stream, content_type, json!({ "results": [{ "flagged": true }] }).to_string().as_bytes())
        }
        Answer::Refusal(refusal) => refuse(stream, refusal, question),
        Answer::Body { content_type, bytes } => whole(stream, content_type, bytes),
        Answer::CutShort => {
            head(stream, content_type, Some(body.len()))?;
            stream.write_all(&body[..half])
        }
        Answer::EndsEarly => {
            head(stream, content_type, None)?;
            stream.write_all(&body[..half])
        }
        Answer::Drip => {
            head(stream, content_type, Some(body.len()))?;
            for byte in &body {
                stream.write_all(&[*byte])?;
                thread::sleep(DRIP);
            }
            Ok(())
        }
        Answer::Endless => {
            head(stream, content_type, None)?;
            stream.write_all(&body)?;
            loop {
                stream.write_all(&[0; 16 << 10])?;
            }
        }
        Answer::Stall(gate) => {
            head(stream, content_type, Some(body.len()))?;
            stream.write_all(&body[..half])?;
            gate.pass();
            stream.write_all(&body[half..])
        }
        Answer::Late(gate) => {
            gate.pass();
            whole(stream, content_type, &body)
        }
        Answer::Silence => {
            shared.end.pass();
            Ok(())
        }
        Answer::HangUp => Ok(()),
    }
}

/// A good answer: its kind and its body.
fn well(question: &Question) -> (&'static str, Vec<u8>) {
    match question.asked {
        Asked::Download => ("image/png", Pictures::picture()),
        Asked::Moderation => ("application/json", br#"{"results":[{"flagged":false}]}"#.to_vec()),
        Asked::Drawing => {
            let text = base64(&Pictures::picture());
            ("application/json", json!({ "created": 1, "data": [{ "b64_json": text }] }).to_string().into_bytes())
        }
    }
}

fn linked(address: &str) -> Vec<u8> {
    json!({ "created": 1, "data": [{ "url": address }] }).to_string().into_bytes()
}

fn whole(mut stream: &TcpStream, content_type: &str, body: &[u8]) -> io::Result<()> {
    head(stream, content_type, Some(body.len()))?;
    stream.write_all(body)
}

fn head(mut stream: &TcpStream, content_type: &str, length: Option<usize>) -> io::Result<()> {
    let length = length.map(|length| format!("Content-Length: {length}\r\n")).unwrap_or_default();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{length}Connection: close\r\n\r\n")
}

fn refuse(mut stream: &TcpStream, refusal: &Refusal, question: &Question) -> io::Result<()> {
    let mut error = refusal.error.clone();
    if let Some(error) = error.as_object_mut() {
        let said = question.said.get("prompt").or_else(|| question.said.get("input")).cloned().unwrap_or_default();
        error.insert("message".into(), json!(format!("Your request was refused: {said}")));
    }
    let body = json!({ "error": error }).to_string();
    let headers: Vec<String> = refusal.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let headers = headers.concat();
    write!(
        stream,
        "HTTP/1.1 {} Refused\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        refusal.status,
        body.len()
    )
}

/// Bytes as text.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let all = three.iter().fold(0u32, |all, byte| (all << 8) | u32::from(*byte)) << (8 * (3 - three.len()));
        for letter in 0..4 {
            let index = (all >> (18 - 6 * letter)) & 63;
            text.push(if letter <= three.len() { char::from(LETTERS[index as usize]) } else { '=' });
        }
    }
    text
}
