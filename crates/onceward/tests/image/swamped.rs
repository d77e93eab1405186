//! A provider that says far more than it was asked for.

use onceward_testkit::pictures::{Answer, Asked, Pictures};
use onceward_testkit::served::Db;
use serde_json::json;

use crate::house::House;

/// Bytes of an answer: as many as are taken for a picture of the largest size.
const ANSWER: usize = 20 << 20;

/// What the server may take for it: the answer itself, twice while it comes, and what is said of the picture. Each of its
/// items would take more than ten times its bytes.
const GROWTH: u64 = 90 << 20;

/// The most memory that the server has had so far.
fn most_memory(house: &House) -> u64 {
    house.served().kilobytes("VmHWM") * 1024
}

/// Millions of pictures in place of one: the first is taken, and the others cost no memory. A refusal as long is cut off.
#[test]
fn an_endless_list_takes_little_memory() {
    let service = Pictures::start();
    let first = json!({ "url": format!("{}/pictures/1.png", service.url()) });
    let list = format!("{{\"data\":[{first}{}]}}", ",{}".repeat(ANSWER / 3));
    let house = House::with_keys(Db::Sqlite, &["--image-url", &service.url(), "--image-time", "18446744073709551615"]);
    let ann = house.key("ann", &["user"]);
    house.grant("ann", 15);
    let job = house.ordered(&ann, "a boat at sea");
    house.until(&ann, &job, "completed");
    let before = most_memory(&house);
    service.next(Asked::Drawing, Answer::text(&list));
    let job = house.ordered(&ann, "a boat on land");
    house.until(&ann, &job, "completed");
    let zeros = json!({ "code": "x", "e": vec![0; ANSWER / 2] });
    service.next(Asked::Drawing, Answer::refusal(400).error(zeros));
    let job = house.ordered(&ann, "a boat in the air");
    house.until(&ann, &job, "dead_letter");
    let grown = most_memory(&house) - before;
    assert!(grown < GROWTH, "the server grew by {grown} bytes");
    println!("{} bytes of answer, and the server grew by {grown} bytes", list.len());
}
