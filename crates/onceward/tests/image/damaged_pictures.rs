//! Tests that a damaged picture is never served as complete, and that `onceward verify` reports damaged and missing
//! pictures.

use onceward_testkit::fake_image_service::{FakeImageService, FakeResponse, RequestKind, gray_noise_png};
use onceward_testkit::server_process::{ALL_DATABASES, DatabaseKind};

use crate::support::ImageServer;

#[test]
fn damaged_picture_download_is_cut_off() {
    let service = FakeImageService::start();
    service.respond_always(RequestKind::Generation, FakeResponse::ImageUrl);
    service.respond_always(
        RequestKind::Download,
        FakeResponse::Body { content_type: "image/png", bytes: gray_noise_png(700) },
    );
    let server = ImageServer::with_keys(DatabaseKind::Sqlite, &["--image-url", &service.url()]);
    let ann = server.key("ann", &["user"]);
    server.grant("ann", 5);
    let job = server.place_order(&ann, "a boat at sea");
    let url = server.wait_for_job(&ann, &job, "completed")["resultUrl"].as_str().expect("address").to_owned();
    let (sound, is_whole) = server.process().get_partial(&ann, &url);
    assert!(sound.status == 200 && is_whole && sound.body.len() > 400_000, "{} bytes", sound.body.len());
    let file = std::fs::read_dir(server.originals()).expect("folder").next().expect("a picture").expect("it").path();
    let mut bytes = std::fs::read(&file).expect("file exists");
    bytes[300_000] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let (harmed, is_whole) = server.process().get_partial(&ann, &url);
    assert!(harmed.status == 200 && !is_whole, "{} bytes", harmed.body.len());
}

/// Without `--contents`, verify only checks that pictures exist.
#[test]
fn verify_finds_missing_and_damaged_pictures() {
    for db in ALL_DATABASES {
        let server = ImageServer::open(db, &[]);
        server.grant("local", 15);
        let mut drawn = ["a cat", "a dog", "a bird"].map(|prompt| {
            let job = server.place_order("", prompt);
            let asset = server.wait_for_job("", &job, "completed")["asset"].as_str().expect("asset").to_owned();
            (server.originals().join(format!("{job}-1.png")), asset)
        });
        let (all, changed) = (server.run_verify(&[]), |file: &std::path::Path| {
            let mut bytes = std::fs::read(file).expect("file exists");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(file, bytes).expect("written");
        });
        assert!(all.0 && all.1["objects"] == 3, "{db:?}: {}", all.1);
        assert!(server.run_verify(&["--contents"]).0);
        changed(&drawn[0].0);
        std::fs::remove_file(&drawn[1].0).expect("file exists");
        let found = |more: &[&str]| {
            let (is_clean, report) = server.run_verify(more);
            assert!(!is_clean, "{report}");
            let mut found: Vec<_> = report["differences"].as_array().expect("differences").clone();
            assert!(found.iter().all(|one| one["table"] == "images" && one["rule"] == "IMG-3"), "{report}");
            found.sort_by_key(|one| one["key"].to_string());
            found.iter().map(|one| one["key"].as_str().expect("asset").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(&[]), [drawn[1].1.clone()], "one picture is missing");
        drawn[..2].sort_by(|one, other| one.1.cmp(&other.1));
        assert_eq!(found(&["--contents"]), [drawn[0].1.clone(), drawn[1].1.clone()], "one picture is damaged");
        // A removed picture is not reported as missing.
        for (_, asset) in &drawn {
            assert_eq!(server.call("", "DELETE", &format!("/image/assets/{asset}")).status, 200);
            server.wait_for_record("", asset, "removed");
        }
        let (is_clean, report) = server.run_verify(&["--contents"]);
        assert!(is_clean && report["objects"] == 0, "{report}");
    }
}
