//! The server's bounds on time and number, over real sockets: whoever oversteps one is told so, and the others are served.
//!
//! Times are short here, and real. Nobody sleeps: each test waits for what the server says, and none waits for ever.

mod house;

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use axum::routing::{get, post};
use house::{House, on_sqlite, until};
use onceward_server::{Given, Part, Settings};
use onceward_testkit::http::{self, JSON, Reply, answer};
use serde_json::{Value as Json, json};
use utoipa_axum::router::OpenApiRouter;

/// Short, and long enough for a request that comes at once on a busy machine.
const SHORT: Duration = Duration::from_millis(300);

const CREATE: &str = "/v1/lifecycles/house.job/records";

/// A server with these settings, and one route that never answers.
#[expect(clippy::needless_pass_by_value, reason = "a closure, written where it is used")]
fn with(settings: Settings, test: impl AsyncFn(&House)) {
    let keep = async |Given(_): Given<Json>| std::future::pending::<()>().await;
    let routes = OpenApiRouter::default().route("/stuck", get(std::future::pending::<()>)).route("/kept", post(keep));
    let part = Part { routes, ..Part::default() };
    on_sqlite(settings, vec![part], async |house| {
        test(&house).await;
        house.close().await;
    });
}

fn ask(house: &House, method: &str, path: &str, body: Option<&str>) -> Reply {
    http::call(house.address(), method, path, &[], body.map(str::as_bytes))
}

/// The server has not broken: it does real work for others.
fn serves(house: &House) {
    assert_eq!(ask(house, "POST", CREATE, Some("{}")).status, 201);
}

/// All that comes until the server hangs up.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("an orderly end");
    rest
}

#[test]
fn a_head_that_does_not_come_in_time() {
    with(Settings { head_time: SHORT, ..Settings::default() }, async |house| {
        let silent: Vec<_> = (0..20).map(|_| http::connect(house.address())).collect();
        // Each at once, so that none is taken for one that has begun nothing.
        let begun = || {
            let mut stream = http::connect(house.address());
            stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n").expect("sent");
            stream
        };
        let begun: Vec<_> = (0..20).map(|_| begun()).collect();
        // One that sends a byte whenever it is able to has no more time for it.
        let mut dripping = http::connect(house.address());
        dripping.write_all(b"GET /livez HTTP/1.1\r\nx: ").expect("sent");
        dripping.set_read_timeout(Some(Duration::from_millis(5))).expect("a time");
        serves(house);
        let mut first = [0; 12];
        until("a byte now and then", || {
            let _ = dripping.write_all(b"x");
            dripping.peek(&mut first).is_ok_and(|read| read == first.len())
        });
        assert_eq!(&first, b"HTTP/1.1 408");
        for stream in begun {
            answer(&stream).is_problem(408, "slow_head");
            assert_eq!(rest(stream), b"", "nothing comes after it");
        }
        for stream in silent {
            assert_eq!(rest(stream), b"", "whoever has begun nothing is told nothing");
        }
        serves(house);
    });
}

#[test]
fn a_body_that_does_not_come_in_time() {
    with(Settings { body_time: SHORT, ..Settings::default() }, async |house| {
        let mut slow = http::connect(house.address());
        http::begin(&mut slow, "POST", CREATE, &[JSON, ("content-length", "100")]);
        slow.write_all(b"{").expect("sent");
        serves(house);
        answer(&slow).is_problem(408, "slow_body");
        assert_eq!(rest(slow), b"", "what comes after it cannot be told from its rest");
        serves(house);
    });
}

#[test]
fn an_answer_that_does_not_come_in_time() {
    with(Settings { request_time: SHORT, ..Settings::default() }, async |house| {
        let mut stuck = http::connect(house.address());
        http::write(&mut stuck, "GET", "/stuck", &[], None);
        // Nothing that a slow disk could make late, too.
        let lives = || assert_eq!(ask(house, "GET", "/livez", None).status, 200);
        lives();
        let late = answer(&stuck);
        late.is_problem(503, "timed_out");
        assert_eq!(late.header("retry-after"), Some("1"));
        // The connection is as good as before.
        http::write(&mut stuck, "GET", "/livez", &[], None);
        assert_eq!(answer(&stuck).status, 200);
        lives();
    });
}

/// One who does not read its answer holds a connection for so long and no longer.
#[test]
fn an_answer_that_is_not_taken_in_time() {
    with(Settings { write_time: SHORT, ..Settings::default() }, async |house| {
        let payload = json!({ "payload": "x".repeat(1_000_000) }).to_string();
        let made = ask(house, "POST", CREATE, Some(&payload)).ok();
        let path = format!("/v1/records/{}/payload", made["id"].as_str().expect("an id"));
        let mut deaf = http::connect(house.address());
        // More than any buffers between us hold.
        for _ in 0..40 {
            http::write(&mut deaf, "GET", &path, &[], None);
        }
        until("it is let go", || house.gauge("onceward_http_connections") == 1);
        serves(house);
    });
}

#[test]
fn more_connections_than_there_is_room_for() {
    with(Settings { connections: 2, ..Settings::default() }, async |house| {
        let mut held: Vec<_> = (0..2).map(|_| http::connect(house.address())).collect();
        for stream in &mut held {
            http::write(stream, "GET", "/livez", &[], None);
            assert_eq!(answer(stream).status, 200);
        }
        for path in ["/livez", CREATE] {
            let mut one_more = http::connect(house.address());
            http::write(&mut one_more, "POST", path, &[], Some(&b" ".repeat(20_000)));
            let full = answer(&one_more);
            full.is_problem(503, "too_many_connections");
            assert_eq!((full.header("retry-after"), full.header("connection")), (Some("1"), Some("close")));
            assert_eq!(full.json()["retry_after_ms"], 1_000);
            assert_eq!(rest(one_more), b"", "its length is as it says");
        }
        // Those who are there are served, and with one of them gone there is room again.
        http::write(&mut held[0], "POST", CREATE, &[], Some(b"{}"));
        assert_eq!(answer(&held[0]).status, 201);
        drop(held.pop());
        until("room again", || ask(house, "GET", "/livez", None).status == 200);
    });
}

#[test]
fn more_leases_that_wait_than_may() {
    with(Settings { polls: 1, ..Settings::default() }, async |house| {
        let wanted = |ms: u32| json!({ "lifecycles": ["house.job"], "worker": "w", "wait_ms": ms }).to_string();
        let mut first = http::connect(house.address());
        http::write(&mut first, "POST", "/v1/leases", &[], Some(wanted(300_000).as_bytes()));
        until("it waits", || house.gauge("onceward_http_long_polls") == 1);
        let second = ask(house, "POST", "/v1/leases", Some(&wanted(300_000)));
        second.is_problem(503, "too_many_waiting");
        assert_eq!(second.header("retry-after"), Some("1"));
        // Who does not wait needs no place.
        assert_eq!(ask(house, "POST", "/v1/leases", Some(&wanted(0))).ok(), json!({ "executions": [] }));
        serves(house);
        assert_eq!(answer(&first).ok()["executions"].as_array().map(Vec::len), Some(1));
        assert_eq!(ask(house, "POST", "/v1/leases", Some(&wanted(1))).status, 200, "its place is free again");
    });
}

#[test]
fn more_streams_than_may_be_open() {
    with(Settings { streams: 1, ..Settings::default() }, async |house| {
        let mut first = http::connect(house.address());
        http::write(&mut first, "GET", "/v1/stream", &[], None);
        let mut from = BufReader::new(first);
        assert!(http::head(&mut from).starts_with("HTTP/1.1 200"));
        let second = ask(house, "GET", "/v1/stream", None);
        second.is_problem(503, "too_many_streams");
        assert_eq!(second.header("retry-after"), Some("1"));
        serves(house);
        drop(from);
        until("its place is free again", || {
            let mut next = http::connect(house.address());
            http::write(&mut next, "GET", "/v1/stream", &[], None);
            http::head(&mut BufReader::new(next)).starts_with("HTTP/1.1 200")
        });
    });
}

/// One key does not take every place: whoever else comes finds room. As long as there are no keys, there are no shares.
#[test]
fn more_than_a_keys_share() {
    with(Settings { streams: 4, polls: 4, ..Settings::default() }, async |house| {
        let wanted = json!({ "lifecycles": ["house.job"], "worker": "w", "wait_ms": 300_000 }).to_string();
        let open = |key: Option<&str>, path: &str| {
            let bearer = key.map(|key| format!("Bearer {key}"));
            let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", &**bearer)).collect();
            let mut stream = http::connect(house.address());
            let (method, body) = if path == "/v1/leases" { ("POST", Some(wanted.as_bytes())) } else { ("GET", None) };
            http::write(&mut stream, method, path, &headers, body);
            stream
        };
        // The answer to a stream begins at once; a lease that waits is seen to wait.
        let streams = |key: Option<&str>| {
            let mut from = BufReader::new(open(key, "/v1/stream"));
            let head = http::head(&mut from);
            head.starts_with("HTTP/1.1 200").then_some(from).ok_or(head)
        };
        let everybody: Vec<_> = (0..4).map(|_| streams(None).expect("no share")).collect();
        drop(everybody);
        let keys = [("ann", "worker"), ("bob", "worker"), ("ops", "operator")];
        let mut texts = Vec::new();
        for (owner, role) in keys {
            texts.push(house.key(owner, &[role], &[]).await);
        }
        let [ann, bob, ops] = &texts[..] else { panic!("three keys") };
        let held = |name: &str| {
            let bearer = format!("Bearer {ops}");
            let page = http::call(house.address(), "GET", "/metrics", &[("authorization", &bearer)], None).text();
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|number| number.parse::<usize>().ok()).expect("a number")
        };
        until("those without a key are gone", || held("onceward_http_streams") == 0);
        let mut anns: Vec<_> = (0..2).map(|_| streams(Some(ann)).expect("half of them")).collect();
        let third = answer(&open(Some(ann), "/v1/stream"));
        third.is_problem(429, "too_many_of_key");
        assert_eq!((third.header("retry-after"), &third.json()["retry_after_ms"]), (Some("1"), &json!(1_000)));
        let bobs: Vec<_> = (0..2).map(|_| streams(Some(bob)).expect("there is room for others")).collect();
        answer(&open(Some(bob), "/v1/stream")).is_problem(503, "too_many_streams");
        anns.pop();
        until("her place is free again", || streams(Some(ann)).map(|again| anns.push(again)).is_ok());
        drop(bobs);
        // Leases that wait, alike.
        let waiting: Vec<_> = (0..2).map(|_| open(Some(ann), "/v1/leases")).collect();
        until("they wait", || held("onceward_http_long_polls") == 2);
        answer(&open(Some(ann), "/v1/leases")).is_problem(429, "too_many_of_key");
        let others = open(Some(bob), "/v1/leases");
        until("he waits", || held("onceward_http_long_polls") == 3);
        drop((waiting, others));
    });
}

/// What is no request at all is told so as a problem, too, not only by a number.
#[test]
fn heads_that_are_none() {
    with(Settings { head_bytes: 8 << 10, ..Settings::default() }, async |house| {
        let long = |name: &str, bytes: usize| {
            format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{name}: {}\r\n\r\n", "x".repeat(bytes))
        };
        let many = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(200));
        for (text, status, code) in [
            ("nonsense\r\n\r\n".to_owned(), 400, "bad_head"),
            ("GET /livez HTTP/9.9\r\n\r\n".to_owned(), 400, "bad_head"),
            ("GET /livez HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), 400, "bad_head"),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 400, "bad_head"),
            ("\u{16}\u{3}\u{1}\u{2}\0 as TLS begins\r\n\r\n".to_owned(), 400, "bad_head"),
            (long("x", 20_000), 431, "head_too_large"),
            (many, 431, "head_too_large"),
        ] {
            let mut stream = http::connect(house.address());
            let _ = stream.write_all(text.as_bytes());
            let said = answer(&stream);
            said.is_problem(status, code);
            assert_eq!(said.header("connection"), Some("close"));
            assert_eq!(rest(stream), b"", "and nothing but that");
        }
        serves(house);
    });
}

#[test]
fn more_bytes_on_their_way_than_there_is_room_for() {
    with(Settings { bodies_bytes: 10_000, ..Settings::default() }, async |house| {
        let long = format!("{{\"payload\": \"{}\"}}", "x".repeat(40_000));
        let mut first = http::connect(house.address());
        http::begin(&mut first, "POST", CREATE, &[JSON, ("content-length", &long.len().to_string())]);
        first.write_all(&long.as_bytes()[..9_000]).expect("sent");
        until("the first has come", || house.gauge("onceward_http_body_bytes") == 9_000);
        let other = format!("{{\"payload\": \"{}\"}}", "y".repeat(5_000));
        let said = ask(house, "POST", CREATE, Some(&other));
        said.is_problem(503, "overloaded");
        assert_eq!(said.header("retry-after"), Some("1"));
        assert_eq!(house.gauge("onceward_http_body_bytes"), 9_000, "what is turned away takes nothing");
        // A small one still fits; and one that is alone always does, however long it is.
        serves(house);
        first.write_all(&long.as_bytes()[9_000..]).expect("sent");
        assert_eq!(answer(&first).status, 201);
        assert_eq!(ask(house, "POST", CREATE, Some(&other)).status, 201, "the room is given back");
    });
}

/// What was read is kept until it is answered, and takes its room for so long.
#[test]
fn bytes_are_counted_until_they_are_let_go() {
    with(Settings { bodies_bytes: 10_000, ..Settings::default() }, async |house| {
        let body = json!({ "x": "x".repeat(8_000) }).to_string();
        let other = json!({ "payload": "y".repeat(5_000) }).to_string();
        let mut kept = http::connect(house.address());
        http::write(&mut kept, "POST", "/kept", &[], Some(body.as_bytes()));
        until("it is kept", || house.gauge("onceward_http_body_bytes") == body.len() as u64);
        ask(house, "POST", CREATE, Some(&other)).is_problem(503, "overloaded");
        drop(kept);
        until("it is let go", || house.gauge("onceward_http_body_bytes") == 0);
        assert_eq!(ask(house, "POST", CREATE, Some(&other)).status, 201);
    });
}

/// A batch may be small as bytes and huge as calls.
#[test]
fn more_calls_than_a_batch_may_have() {
    with(Settings::default(), async |house| {
        let many = format!("{{\"records\": [{}{{}}]}}", "{},".repeat(2_000_000));
        ask(house, "POST", &format!("{CREATE}/batch"), Some(&many)).is_problem(422, "batch_too_large");
        serves(house);
    });
}

#[test]
fn more_requests_than_a_key_may_send() {
    with(Settings { requests_per_second: 3, ..Settings::default() }, async |house| {
        let (ann, bob) = (house.key("ann", &["producer"], &[]).await, house.key("bob", &["producer"], &[]).await);
        let send = |key: &str| {
            let bearer = format!("Bearer {key}");
            http::call(house.address(), "GET", "/v1/records", &[("authorization", &bearer)], None)
        };
        assert_eq!(send(&ann).status, 200);
        let mut limited = None;
        until("too many", || {
            limited = Some(send(&ann)).filter(|said| said.status != 200);
            limited.is_some()
        });
        let limited = limited.expect("an answer");
        limited.is_problem(429, "rate_limited");
        assert_eq!(limited.header("retry-after"), Some("1"), "in whole seconds");
        let wait = limited.json()["retry_after_ms"].as_u64().expect("a number");
        assert!((1..=334).contains(&wait), "{wait} ms for one of three a second");
        // Another key has its own share, and who needs none has no limit.
        assert_eq!(send(&bob).status, 200);
        assert_eq!(ask(house, "GET", "/livez", None).status, 200);
    });
}

/// Bytes that nobody reads do not take an answer back: who sends too much reads why.
#[test]
fn an_early_answer_arrives() {
    with(Settings { body_bytes: 1_000, ..Settings::default() }, async |house| {
        for _ in 0..20 {
            let mut stream = http::connect(house.address());
            http::write(&mut stream, "POST", CREATE, &[], Some(&b" ".repeat(400_000)));
            let _ = stream.shutdown(Shutdown::Write);
            answer(&stream).is_problem(413, "too_large");
        }
        serves(house);
    });
}
