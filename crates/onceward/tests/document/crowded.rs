//! Many uploads of one owner.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use onceward_testkit::http::{self, BYTES, Reply};
use onceward_testkit::served::Db;

use crate::house::House;

/// An upload of Alice's that has its place, since its body is asked for; or the answer to it.
fn held(house: &House, name: &str) -> Result<TcpStream, Reply> {
    let head = [BYTES, ("client-request-id", name), ("content-length", "10"), ("expect", "100-continue")];
    let mut stream = house.served.begin_as(&house.alice, "POST", "/document/upload", &head);
    let mut first = [0; 12];
    stream.peek(&mut first).expect("an answer");
    if &first != b"HTTP/1.1 100" {
        return Err(http::answer(&stream));
    }
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).expect("an answer");
    Ok(stream)
}

/// Whoever begins uploads and does not go on with them holds a quarter of the places, and no more: others upload all the while.
#[test]
fn one_owner_leaves_places_to_others() {
    let house = House::open(Db::Sqlite);
    let mut holding: Vec<TcpStream> =
        (0..4).map(|number| held(&house, &number.to_string()).expect("a place")).collect();
    let fifth = held(&house, "fifth").expect_err("no place");
    fifth.is_problem(503, "too_many_uploads");
    assert!(fifth.header("retry-after").is_some());
    assert_eq!(house.upload(&house.bob, "his", b"x").status, 201);
    holding[0].write_all(&[7; 10]).expect("it reads");
    assert_eq!(http::answer(&holding.remove(0)).status, 201);
    assert_eq!(house.upload(&house.alice, "fifth", b"x").status, 201, "one of hers is free again");
}
