//! Supported document formats and how the script distinguishes them.

use std::process::Command;

use onceward_testkit::TempDir;

use crate::script_run::{ScriptRun, assert_extracts, sample, system_folder};

#[test]
fn pdf_text_is_extracted() {
    assert_extracts(&sample("letter.pdf"), &["The parcel weighs 42 kilograms.", "The second page"]);
    // Some PDFs have other bytes before the header.
    assert_extracts(&[b"\n\n", &sample("letter.pdf")[..]].concat(), &["The parcel weighs 42 kilograms."]);
}

#[test]
fn scanned_pdf_page_is_read_by_ocr() {
    assert_extracts(&sample("scan.pdf"), &["20261116", "brass telescope", "keeper of the lighthouse"]);
}

#[test]
fn text_and_scanned_pages_are_read_in_order() {
    let folder = TempDir::new();
    let (samples, united) = (system_folder().join("samples"), folder.database_path().with_extension("pdf"));
    let mut unite = Command::new("pdfunite");
    unite.args([samples.join("letter.pdf"), samples.join("scan.pdf"), samples.join("letter.pdf"), united.clone()]);
    assert!(unite.status().expect("pdfunite").success());
    let output = ScriptRun::new().extract(&std::fs::read(united).expect("a file"));
    let words = ["weighs 42 kilograms", "The second page", "keeper of the lighthouse", "weighs 42 kilograms"];
    let mut rest = &*output.stdout_text;
    for word in words {
        let at = rest.find(word).unwrap_or_else(|| panic!("{word} is missing or out of order: {output:?}"));
        rest = &rest[at + word.len()..];
    }
}

#[test]
fn png_jpeg_and_tiff_are_read_by_ocr() {
    assert_extracts(&sample("page.png"), &["brass telescope"]);
    assert_extracts(&sample("page.jpg"), &["brass telescope"]);
    assert_extracts(&sample("page.tif"), &["brass telescope"]);
}

#[test]
fn truncated_document_is_corrupt_data() {
    for name in ["letter.pdf", "scan.pdf"] {
        let whole = sample(name);
        for part in [20, 100, whole.len() / 2, whole.len() * 9 / 10] {
            ScriptRun::new().extract(&whole[..part]).assert_failure(1, "CORRUPT_DATA");
        }
    }
    for name in ["page.png", "page.jpg", "page.tif"] {
        let whole = sample(name);
        ScriptRun::new().extract(&whole[..100]).assert_failure(1, "CORRUPT_DATA");
    }
}

#[test]
fn damaged_document_is_corrupt_data() {
    ScriptRun::new().extract(b"%PDF-1.7\nand then nothing of the kind\n%%EOF\n").assert_failure(1, "CORRUPT_DATA");
    let mut damaged = sample("page.png");
    damaged[16..].fill(0);
    ScriptRun::new().extract(&damaged).assert_failure(1, "CORRUPT_DATA");
}

#[test]
fn encrypted_pdf_is_unsupported_format() {
    ScriptRun::new().extract(&sample("sealed.pdf")).assert_failure(1, "UNSUPPORTED_FORMAT");
}

#[test]
fn unknown_file_type_is_unsupported_format() {
    for other in [&b"I am no PDF"[..], b"", b"\x7fELF", b"PK\x03\x04 a zip, perhaps", b"{\"a\": 1}", &[0; 5_000]] {
        ScriptRun::new().extract(other).assert_failure(1, "UNSUPPORTED_FORMAT");
    }
}

#[test]
fn document_over_50_mb_is_size_exceeded() {
    let mut large = sample("letter.pdf");
    large.resize(50 * 1024 * 1024 + 1, b'\n');
    ScriptRun::new().extract(&large).assert_failure(1, "SIZE_EXCEEDED");
}

#[test]
fn scanned_pages_over_limit_are_limit_exceeded() {
    ScriptRun::new().with_env("DOCUMENT_PAGES", "0").extract(&sample("scan.pdf")).assert_failure(1, "LIMIT_EXCEEDED");
}

#[test]
fn blank_page_is_ocr_failure() {
    ScriptRun::new().extract(&sample("blank.pdf")).assert_failure(1, "OCR_FAILURE");
}
