//! A picture that changed where it lies is never given out as whole.

use std::io::{BufReader, Read as _};

use onceward_testkit::http;
use onceward_testkit::pictures::{Answer, Asked, Pictures, png};

use crate::client::Db;
use crate::house::House;

/// Of an answer: the length that its head promises, and how many bytes come before it ends.
fn taken(house: &House, key: &str, path: &str) -> (usize, usize) {
    let mut stream = house.served().connect();
    let headers = [("authorization", &*format!("Bearer {key}")), ("connection", "close")];
    http::write(&mut stream, "GET", path, &headers, None);
    let mut stream = BufReader::new(stream);
    let head = http::head(&mut stream).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let promised = head.lines().find_map(|line| line.strip_prefix("content-length:")).expect("a length").trim();
    let mut body = Vec::new();
    // How it ends is not the question.
    let _ = stream.read_to_end(&mut body);
    (promised.parse().expect("a number"), body.len())
}

/// The picture as it was drawn, or an answer that breaks off.
#[test]
fn a_damaged_picture_is_not_sent_as_whole() {
    let service = Pictures::start();
    service.always(Asked::Drawing, Answer::Link);
    service.always(Asked::Download, Answer::Body { content_type: "image/png", bytes: png(700) });
    let house = House::with_keys(Db::Sqlite, &["--image-url", &service.url()]);
    let ann = house.key("ann", &["user"]);
    house.grant("ann", 5);
    let job = house.ordered(&ann, "a boat at sea");
    let url = house.until(&ann, &job, "completed")["resultUrl"].as_str().expect("an address").to_owned();
    let (promised, came) = taken(&house, &ann, &url);
    assert!(promised > 400_000 && came == promised);
    let file = std::fs::read_dir(house.originals()).expect("a folder").next().expect("a picture").expect("it").path();
    let mut bytes = std::fs::read(&file).expect("it is there");
    bytes[300_000] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let (promised, came) = taken(&house, &ann, &url);
    assert!(came < promised, "{came} of {promised} bytes");
}
