//! Documents of each kind: what is read, and what is told apart.

use std::process::Command;

use onceward_testkit::Folder;

use crate::run::{Run, reads, sample, system};

#[test]
fn a_pdf_with_text_is_read() {
    reads(&sample("letter.pdf"), &["The parcel weighs 42 kilograms.", "The second page"]);
    // Some have a line of something else before them.
    reads(&[b"\n\n", &sample("letter.pdf")[..]].concat(), &["The parcel weighs 42 kilograms."]);
}

#[test]
fn a_scanned_page_is_read() {
    reads(&sample("scan.pdf"), &["20261116", "brass telescope", "keeper of the lighthouse"]);
}

/// Some pages have text, others were scanned: all are read, in their order.
#[test]
fn a_document_may_have_pages_of_both_kinds() {
    let folder = Folder::new();
    let (samples, both) = (system().join("samples"), folder.file().with_extension("pdf"));
    let mut unite = Command::new("pdfunite");
    unite.args([samples.join("letter.pdf"), samples.join("scan.pdf"), samples.join("letter.pdf"), both.clone()]);
    assert!(unite.status().expect("pdfunite").success());
    let ended = Run::new().of(&std::fs::read(both).expect("a file"));
    let words = ["weighs 42 kilograms", "The second page", "keeper of the lighthouse", "weighs 42 kilograms"];
    let mut rest = &*ended.text;
    for word in words {
        let at = rest.find(word).unwrap_or_else(|| panic!("{word} is missing, or not in its place: {ended:?}"));
        rest = &rest[at + word.len()..];
    }
}

#[test]
fn an_image_is_read() {
    reads(&sample("page.png"), &["brass telescope"]);
    reads(&sample("page.jpg"), &["brass telescope"]);
    reads(&sample("page.tif"), &["brass telescope"]);
}

#[test]
fn what_is_truncated_is_corrupt() {
    for name in ["letter.pdf", "scan.pdf"] {
        let whole = sample(name);
        for part in [20, 100, whole.len() / 2, whole.len() * 9 / 10] {
            Run::new().of(&whole[..part]).is(1, "CORRUPT_DATA");
        }
    }
    for name in ["page.png", "page.jpg", "page.tif"] {
        let whole = sample(name);
        Run::new().of(&whole[..100]).is(1, "CORRUPT_DATA");
    }
}

#[test]
fn what_is_damaged_is_corrupt() {
    Run::new().of(b"%PDF-1.7\nand then nothing of the kind\n%%EOF\n").is(1, "CORRUPT_DATA");
    let mut damaged = sample("page.png");
    damaged[16..].fill(0);
    Run::new().of(&damaged).is(1, "CORRUPT_DATA");
}

#[test]
fn an_encrypted_pdf_is_not_supported() {
    Run::new().of(&sample("sealed.pdf")).is(1, "UNSUPPORTED_FORMAT");
}

#[test]
fn other_kinds_are_not_supported() {
    for other in [&b"I am no PDF"[..], b"", b"\x7fELF", b"PK\x03\x04 a zip, perhaps", b"{\"a\": 1}", &[0; 5_000]] {
        Run::new().of(other).is(1, "UNSUPPORTED_FORMAT");
    }
}

#[test]
fn what_is_too_large_is_not_read() {
    let mut large = sample("letter.pdf");
    large.resize(50 * 1024 * 1024 + 1, b'\n');
    Run::new().of(&large).is(1, "SIZE_EXCEEDED");
}

#[test]
fn many_scanned_pages_are_too_many() {
    Run::new().with("DOCUMENT_PAGES", "0").of(&sample("scan.pdf")).is(1, "LIMIT_EXCEEDED");
}

#[test]
fn an_empty_page_has_no_words() {
    Run::new().of(&sample("blank.pdf")).is(1, "OCR_FAILURE");
}
