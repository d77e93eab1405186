//! Serves one connection. Reads requests and writes responses by hand, because most responses are invalid on purpose.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::response::{ErrorResponse, FakeResponse};
use super::{FakeImageService, FakeServiceShared, ReceivedRequest, RequestKind};

/// Delay between the bytes of a slow body.
const DRIP_INTERVAL: Duration = Duration::from_millis(20);

pub(super) fn serve_connection(stream: &TcpStream, own: SocketAddr, shared: &FakeServiceShared) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(received) = read_request(&mut reader)? else { return Ok(()) };
    let (asked, prompt) = (received.kind, received.body.clone());
    let answer = shared.take_response(received);
    write_response(
        stream,
        &answer,
        &ResponseContext { kind: asked, service_address: own, request_body: prompt },
        shared,
    )
}

/// What a response depends on.
struct ResponseContext {
    kind: RequestKind,
    service_address: SocketAddr,
    request_body: Value,
}

fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<ReceivedRequest>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let kind = match path.as_str() {
        "/v1/images/generations" => RequestKind::Generation,
        "/v1/moderations" => RequestKind::Moderation,
        path if path.starts_with("/pictures/") => RequestKind::Download,
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
    Ok(Some(ReceivedRequest { kind, path, headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }))
}

fn write_response(
    mut stream: &TcpStream,
    response: &FakeResponse,
    context: &ResponseContext,
    shared: &FakeServiceShared,
) -> io::Result<()> {
    let (content_type, body) = success_body(context);
    let half = body.len() / 2;
    match response {
        FakeResponse::Success => write_success(stream, content_type, &body),
        FakeResponse::ImageUrl => write_success(
            stream,
            content_type,
            &image_url_body(&format!("http://{}/pictures/1.png", context.service_address)),
        ),
        FakeResponse::ImageUrlAt(address) => write_success(stream, content_type, &image_url_body(address)),
        FakeResponse::Flagged => {
            write_success(stream, content_type, json!({ "results": [{ "flagged": true }] }).to_string().as_bytes())
        }
        FakeResponse::ErrorStatus(refusal) => write_error(stream, refusal, context),
        FakeResponse::Body { content_type, bytes } => write_success(stream, content_type, bytes),
        FakeResponse::TruncatedWithLength => {
            write_head(stream, content_type, Some(body.len()))?;
            stream.write_all(&body[..half])
        }
        FakeResponse::TruncatedWithoutLength => {
            write_head(stream, content_type, None)?;
            stream.write_all(&body[..half])
        }
        FakeResponse::SlowBytes => {
            write_head(stream, content_type, Some(body.len()))?;
            for byte in &body {
                stream.write_all(&[*byte])?;
                thread::sleep(DRIP_INTERVAL);
            }
            Ok(())
        }
        FakeResponse::Endless => {
            write_head(stream, content_type, None)?;
            stream.write_all(&body)?;
            loop {
                stream.write_all(&[0; 16 << 10])?;
            }
        }
        FakeResponse::StallMidBody(gate) => {
            write_head(stream, content_type, Some(body.len()))?;
            stream.write_all(&body[..half])?;
            gate.wait_until_open();
            stream.write_all(&body[half..])
        }
        FakeResponse::Delayed(gate) => {
            gate.wait_until_open();
            write_success(stream, content_type, &body)
        }
        FakeResponse::NoResponse => {
            shared.shutdown.wait_until_open();
            Ok(())
        }
        FakeResponse::CloseConnection => Ok(()),
    }
}

/// Returns content type and body of a success response.
fn success_body(context: &ResponseContext) -> (&'static str, Vec<u8>) {
    match context.kind {
        RequestKind::Download => ("image/png", FakeImageService::image_bytes()),
        RequestKind::Moderation => ("application/json", br#"{"results":[{"flagged":false}]}"#.to_vec()),
        RequestKind::Generation => {
            let text = encode_base64(&FakeImageService::image_bytes());
            ("application/json", json!({ "created": 1, "data": [{ "b64_json": text }] }).to_string().into_bytes())
        }
    }
}

fn image_url_body(address: &str) -> Vec<u8> {
    json!({ "created": 1, "data": [{ "url": address }] }).to_string().into_bytes()
}

fn write_success(mut stream: &TcpStream, content_type: &str, body: &[u8]) -> io::Result<()> {
    write_head(stream, content_type, Some(body.len()))?;
    stream.write_all(body)
}

fn write_head(mut stream: &TcpStream, content_type: &str, length: Option<usize>) -> io::Result<()> {
    let length = length.map(|length| format!("Content-Length: {length}\r\n")).unwrap_or_default();
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{length}Connection: close\r\n\r\n")
}

fn write_error(mut stream: &TcpStream, refusal: &ErrorResponse, context: &ResponseContext) -> io::Result<()> {
    let mut error = refusal.error.clone();
    if let Some(error) = error.as_object_mut() {
        let prompt = context
            .request_body
            .get("prompt")
            .or_else(|| context.request_body.get("input"))
            .cloned()
            .unwrap_or_default();
        error.insert("message".into(), json!(format!("Your request was refused: {prompt}")));
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

fn encode_base64(bytes: &[u8]) -> String {
    const BASE64_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let all = three.iter().fold(0u32, |all, byte| (all << 8) | u32::from(*byte)) << (8 * (3 - three.len()));
        for letter in 0..4 {
            let index = (all >> (18 - 6 * letter)) & 63;
            text.push(if letter <= three.len() { char::from(BASE64_ALPHABET[index as usize]) } else { '=' });
        }
    }
    text
}
