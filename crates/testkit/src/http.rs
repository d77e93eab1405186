//! A minimal HTTP client that returns raw responses.

use std::fmt;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value as Json;

/// Far longer than any step of a test takes. A test that waits this long has failed.
pub const TEST_TIMEOUT: Duration = Duration::from_mins(1);

pub const JSON_CONTENT_TYPE: (&str, &str) = ("content-type", "application/json");
pub const BINARY_CONTENT_TYPE: (&str, &str) = ("content-type", "application/octet-stream");

/// Connects with a read timeout.
pub fn connect(to: impl ToSocketAddrs) -> TcpStream {
    let stream = TcpStream::connect(to).expect("the server listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a time");
    stream
}

/// Sends one request on its own connection and returns the response.
pub fn send_request(
    to: impl ToSocketAddrs,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) -> RawHttpResponse {
    let mut stream = connect(to);
    write_request(&mut stream, method, path, headers, body);
    read_response(&stream)
}

/// Writes a request to localhost with a JSON body, unless a header overrides that.
pub fn write_request(stream: &mut TcpStream, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) {
    let length = body.map(|body| body.len().to_string());
    let mut all = headers.to_vec();
    if let Some(length) = &length {
        if !has_header(headers, "content-type") {
            all.push(JSON_CONTENT_TYPE);
        }
        all.push(("content-length", length));
    }
    let mut request = request_head(method, path, &all).into_bytes();
    request.extend(body.unwrap_or_default());
    // The server may have closed the connection early.
    let _ = stream.write_all(&request);
}

/// Writes only the head of a request. The caller gives all headers about the body.
pub fn write_request_head(stream: &mut TcpStream, method: &str, path: &str, headers: &[(&str, &str)]) {
    stream.write_all(request_head(method, path, headers).as_bytes()).expect("the server listens");
}

fn request_head(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if !has_header(headers, "host") {
        head.push_str("host: localhost\r\n");
    }
    for (name, value) in headers {
        head.extend([*name, ": ", *value, "\r\n"]);
    }
    head + "\r\n"
}

fn has_header(headers: &[(&str, &str)], name: &str) -> bool {
    headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
}

/// Reads the only response of a connection.
pub fn read_response(stream: &TcpStream) -> RawHttpResponse {
    RawHttpResponse::read(&mut BufReader::new(stream))
}

/// A raw HTTP response.
#[derive(Clone, PartialEq, Eq)]
pub struct RawHttpResponse {
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    pub body: Vec<u8>,
}

impl fmt::Debug for RawHttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.head, self.text())
    }
}

impl RawHttpResponse {
    /// Returns the value of a metric without labels.
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.text();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name}: {page}"))
    }

    /// Reads one response and no byte after it.
    pub fn read(from: &mut impl BufRead) -> Self {
        let (reply, is_complete) = Self::read_partial(from);
        assert!(is_complete, "the response is incomplete: {reply:?}");
        reply
    }

    /// Reads one response that may be truncated, and returns whether it is complete.
    pub fn read_partial(from: &mut impl BufRead) -> (Self, bool) {
        let head = read_head(from);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no response: {head:?}"));
        let mut reply = Self { status, head, body: Vec::new() };
        let mut is_complete = true;
        if let Some(length) = reply.header("content-length") {
            let length: u64 = length.parse().expect("a number");
            // An early end only makes the response incomplete.
            let _ = from.by_ref().take(length).read_to_end(&mut reply.body);
            is_complete = u64::try_from(reply.body.len()) == Ok(length);
        } else if reply.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            while let Some(piece) = read_chunk(from) {
                reply.body.extend(piece);
            }
        }
        (reply, is_complete)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {} {}", self.head, self.text()))
    }

    /// Asserts a success status and returns the JSON body.
    pub fn expect_ok(&self) -> Json {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text());
        self.json()
    }

    /// Returns the problem code, or an empty text if there is none.
    pub fn problem_code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Removes headers that differ in every response, and sorts the rest.
    pub fn without_volatile_headers(mut self) -> Self {
        let mut lines: Vec<&str> = self.head.lines().filter(|line| !is_volatile_header(line)).collect();
        lines[1..].sort_unstable();
        self.head = lines.join("\n");
        self
    }

    /// Replaces an id with a text of the same length, so that lengths stay equal.
    pub fn with_id_masked(&self, id: &str) -> Self {
        let hide = |text: &str| text.replace(id, &"#".repeat(id.len()));
        Self { status: self.status, head: hide(&self.head), body: hide(&self.text()).into_bytes() }
    }

    /// Asserts a problem response with this status and code.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }
}

/// Returns whether a header differs in every response.
pub fn is_volatile_header(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["date:", "x-request-id:"].iter().any(|name| line.starts_with(name))
}

/// Reads up to the empty line.
pub fn read_head(from: &mut impl BufRead) -> String {
    let mut head = String::new();
    loop {
        let before = head.len();
        from.read_line(&mut head).expect("a response");
        if head.len() == before || head[before..].trim().is_empty() {
            return head;
        }
    }
}

/// Reads the next chunk of a chunked body. Returns `None` after the last chunk or at the end of the connection.
pub fn read_chunk(from: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    from.read_line(&mut line).expect("a piece's length");
    let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
    // Each chunk ends with a line ending, the last one too.
    let mut piece = vec![0; length + 2];
    if line.is_empty() || from.read_exact(&mut piece).is_err() || length == 0 {
        return None;
    }
    piece.truncate(length);
    Some(piece)
}
