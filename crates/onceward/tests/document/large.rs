//! A document as large as one may be, in bounded memory.

use std::io::{BufReader, Read as _, Write as _};

use onceward_testkit::http::{self, BYTES};
use onceward_testkit::served::BOTH;
use serde_json::json;

use crate::house::House;

const MOST: usize = 100 * 1024 * 1024;
const PIECE: usize = 1 << 20;

/// Of what the server takes in memory for it, both ways, in kilobytes.
const GROWTH: u64 = 40 * 1024;

/// Pieces that differ, so that one in another's place would be seen.
fn piece(number: usize) -> Vec<u8> {
    let mut state = u64::try_from(number).expect("small") + 1;
    (0..PIECE / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()
        })
        .collect()
}

/// 100 MB go in and come out without ever being in the server's memory; one byte more is refused, and leaves nothing.
#[test]
fn a_hundred_megabytes_pass_through_little_memory() {
    for db in BOTH {
        let house = House::open(db);
        assert_eq!(house.upload(&house.alice, "first", b"x").status, 201);
        let before = house.served.kilobytes("VmHWM");
        let head = [BYTES, ("client-request-id", "whole"), ("content-length", &*MOST.to_string())];
        let mut stream = house.served.begin_as(&house.alice, "POST", "/document/upload", &head);
        for number in 0..MOST / PIECE {
            stream.write_all(&piece(number)).expect("it reads");
        }
        let made = http::answer(&stream);
        assert_eq!(made.status, 201, "{}", made.text());
        let grown = house.served.kilobytes("VmHWM") - before;
        assert!(grown < GROWTH, "{db:?}: the server grew by {grown} KB on the way in");
        let id = made.json()["jobId"].as_str().expect("an id").to_owned();
        let submitted = house.post(&house.alice, &format!("/document/jobs/{id}/submit"), &json!({}));
        assert_eq!(submitted.status, 200);
        let leased = house.lease();
        assert_eq!(leased["record"]["payload"]["bytes"], MOST);
        let last = [("connection", "close")];
        let stream = house.served.begin_as(&house.worker, "GET", &format!("/v1/records/{id}/payload"), &last);
        let mut stream = BufReader::new(stream);
        http::head(&mut stream);
        let mut read = vec![0; PIECE];
        for number in 0..MOST / PIECE {
            stream.read_exact(&mut read).expect("all of it");
            assert!(read == piece(number), "{db:?}: piece {number} is another");
        }
        assert_eq!(stream.read(&mut read).expect("its end"), 0);
        let grown = house.served.kilobytes("VmHWM") - before;
        assert!(grown < GROWTH, "{db:?}: the server grew by {grown} KB on the way out");
        println!("{db:?}: {MOST} bytes in and out, and the server grew by {grown} KB");
        one_byte_more(&house);
    }
}

/// In chunks, so that nobody knows before the last.
fn one_byte_more(house: &House) {
    let head = [BYTES, ("client-request-id", "more"), ("transfer-encoding", "chunked")];
    let mut stream = house.served.begin_as(&house.alice, "POST", "/document/upload", &head);
    for number in 0..MOST / PIECE {
        stream.write_all(format!("{PIECE:x}\r\n").as_bytes()).expect("it reads");
        stream.write_all(&piece(number + 1)).expect("it reads");
        stream.write_all(b"\r\n").expect("it reads");
    }
    stream.write_all(b"1\r\nx\r\n").expect("it reads");
    http::answer(&stream).is_problem(413, "too_large");
    let jobs = house.get(&house.operator, "/v1/records?lifecycle=document.job").json();
    assert_eq!(jobs["records"].as_array().map(Vec::len), Some(2), "the first, and the whole one");
    let drafts = std::fs::read_dir(house.objects().join("drafts")).expect("a folder").count();
    assert_eq!(drafts, 0);
}
