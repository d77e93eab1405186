//! Calls that go on: streams of the log, and leases that wait. A stream can be taken up from its first moment on, and with its key a call is
//! over.

mod house;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use house::{House, blocking, on_sqlite};
use onceward_core::time::Duration as Length;
use onceward_engine::{KeyDesk, Keys, NewKey};
use onceward_server::Settings;
use onceward_store::{AnyStore, PostgresStore, Store as _};
use onceward_testkit::postgres::Server;
use onceward_testkit::{Following, http, operator};
use serde_json::json;

const CREATE: &str = "/v1/lifecycles/house.job/records";

/// A stream, from its first words on.
struct Stream(Following);

impl Stream {
    fn open(house: &House, key: Option<&str>, path: &str, last: Option<u64>) -> Self {
        let (bearer, last) = (key.map(|key| format!("Bearer {key}")), last.map(|last| last.to_string()));
        let mut headers = Vec::new();
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        headers.extend(last.as_deref().map(|last| ("last-event-id", last)));
        Self(Following::start(house.address(), path, &headers))
    }

    fn next(&mut self) -> Option<String> {
        self.0.piece()
    }

    /// The place that comes alone.
    fn place(&mut self) -> u64 {
        let said = self.next().expect("a place");
        let place = said.strip_prefix("id: ").and_then(|rest| rest.strip_suffix("\n\n"));
        place.and_then(|place| place.parse().ok()).unwrap_or_else(|| panic!("no place: {said:?}"))
    }
}

/// A lease that waits, or has its answer already.
fn wait_for_work(house: &House, key: &str) -> TcpStream {
    let mut stream = http::connect(house.address());
    let wanted = json!({ "lifecycles": ["house.job"], "worker": "w", "wait_ms": 300_000 }).to_string();
    http::write(
        &mut stream,
        "POST",
        "/v1/leases",
        &[("authorization", &format!("Bearer {key}"))],
        Some(wanted.as_bytes()),
    );
    stream
}

fn is_over(waiting: &TcpStream) {
    http::answer(waiting).is_problem(401, "unauthorized");
}

/// Whoever follows from now on and breaks off before anything came has lost nothing.
#[test]
fn a_stream_says_at_once_where_it_stands() {
    on_sqlite(Settings::default(), Vec::new(), async |house| {
        let made =
            || http::call(house.address(), "POST", CREATE, &[], Some(b"{}")).ok()["id"].as_str().map(str::to_owned);
        made();
        let mut first = Stream::open(&house, None, "/v1/stream", None);
        let place = first.place();
        drop(first);
        let missed = made().expect("an id");
        let mut again = Stream::open(&house, None, "/v1/stream", Some(place));
        assert_eq!(again.place(), place);
        let entry = again.next().expect("an entry");
        assert!(entry.starts_with(&format!("id: {}\n", place + 1)) && entry.contains(&missed), "{entry}");
        // Asked for from the beginning, it stands there.
        assert_eq!(Stream::open(&house, None, "/v1/stream?after=0", None).place(), 0);
        house.close().await;
    });
}

/// What is not for a reader goes by, and the reader is told how far: else it would come again to a place that was pruned long ago.
#[test]
fn a_stream_that_shows_nothing_still_gets_on() {
    let settings = Settings { keep_alive: Duration::from_millis(100), ..Settings::default() };
    on_sqlite(settings, Vec::new(), async |house| {
        let mut following = Stream::open(&house, None, "/v1/stream?lifecycle=house.other", None);
        let began = following.place();
        for _ in 0..3 {
            http::call(house.address(), "POST", CREATE, &[], Some(b"{}")).ok();
        }
        let place = loop {
            let said = following.next().expect("a sign of life");
            if said != ": still here\n\n" {
                break said;
            }
        };
        let place: u64 = place.trim().trim_start_matches("id: ").parse().expect("a place");
        assert!(place > began && place <= began + 3, "{began}, then {place}");
        house.close().await;
    });
}

/// With `wait_ms` a stream is a page without an end that one knows: all that is there, and no more.
#[test]
fn a_stream_may_end_by_itself() {
    on_sqlite(Settings::default(), Vec::new(), async |house| {
        for _ in 0..5 {
            http::call(house.address(), "POST", CREATE, &[], Some(b"{}")).ok();
        }
        let read = |query: &str| http::call(house.address(), "GET", &format!("/v1/stream?{query}"), &[], None);
        let all = read("after=0&wait_ms=0").text();
        assert_eq!(all.matches("event: entry").count(), 5, "{all}");
        assert_eq!(read("wait_ms=20").text(), "id: 5\n\n");
        assert_eq!(read("after=0&lifecycle=house.other&wait_ms=20").text(), "id: 0\n\nid: 5\n\n");
        read("wait_ms=300001").is_problem(422, "bad_input");
        house.close().await;
    });
}

/// Revoked here, a key is over at once for what is under way, and for nobody else.
#[test]
fn with_its_key_a_call_is_over() {
    on_sqlite(Settings::default(), Vec::new(), async |house| {
        let (ann, bob) = (house.key("ann", &["worker"], &[]).await, house.key("bob", &["worker"], &[]).await);
        let mut following = Stream::open(&house, Some(&ann), "/v1/stream", None);
        let mut other = Stream::open(&house, Some(&bob), "/v1/stream", None);
        following.place();
        other.place();
        let waiting = wait_for_work(&house, &ann);
        let others = wait_for_work(&house, &bob);
        let id = ann.split('_').nth(1).expect("an id");
        house.engine.keys().revoke(&operator("ops"), id).await.expect("revoked");
        assert_eq!(following.next(), None, "the stream has ended");
        is_over(&waiting);
        // The other's go on.
        let producer = house.key("bob", &["producer"], &[]).await;
        let made = house.send(Some(&producer), "POST", CREATE, Some(&json!({})));
        assert_eq!(made.status, 201);
        let leased = http::answer(&others).ok();
        assert_eq!(leased["executions"][0]["record"]["id"], made.json()["id"]);
        assert!(other.next().expect("an entry").contains("event: entry"));
        house.close().await;
    });
}

/// A key that ends by itself ends what it began.
#[test]
fn a_key_that_expires_ends_its_calls() {
    on_sqlite(Settings::default(), Vec::new(), async |house| {
        let now = house.engine.store().now().await.expect("a time");
        let expires_at = now.checked_add(Length::from_millis(5_000));
        let new = NewKey { owner: "ann".into(), roles: vec!["worker".into()], expires_at, ..NewKey::default() };
        let (_, text) = house.engine.keys().create(&operator("ops"), new).await.expect("a key");
        let mut following = Stream::open(&house, Some(&text.reveal()), "/v1/stream", None);
        following.place();
        let waiting = wait_for_work(&house, &text.reveal());
        assert_eq!(following.next(), None);
        is_over(&waiting);
        house.close().await;
    });
}

/// While there are no keys everybody is let in; with the first one that is over, also for those who are in.
#[test]
fn the_first_key_ends_the_calls_of_those_without() {
    on_sqlite(Settings::default(), Vec::new(), async |house| {
        let mut following = Stream::open(&house, None, "/v1/stream", None);
        following.place();
        house.key("ops", &["operator"], &[]).await;
        assert_eq!(following.next(), None);
        house.close().await;
    });
}

/// Revoked by another process, it is over here a second later.
#[test]
fn a_key_that_is_revoked_elsewhere_ends_its_calls_here() {
    blocking(async {
        let url = Server::shared().database();
        let store = PostgresStore::open(&url).await.expect("a new database");
        let house = House::open(AnyStore::Postgres(store), Settings::default()).await;
        let ann = house.key("ann", &["worker"], &[]).await;
        let mut following = Stream::open(&house, Some(&ann), "/v1/stream", None);
        following.place();
        let waiting = wait_for_work(&house, &ann);
        let (elsewhere, desk) = (PostgresStore::open(&url).await.expect("the same database"), KeyDesk::default());
        let id = ann.split('_').nth(1).expect("an id");
        Keys::on(&elsewhere, &desk).revoke(&operator("ops"), id).await.expect("revoked");
        let began = Instant::now();
        assert_eq!(following.next(), None);
        println!("the stream ended {:?} later", began.elapsed());
        is_over(&waiting);
        println!("and the lease {:?} later", began.elapsed());
        house.close().await;
    });
}
