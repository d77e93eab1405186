//! Small documents that would use excessive memory, time or disk.

use crate::pdf::PdfBuilder;
use crate::script_run::{ScriptRun, sample};
use crate::tiff::{TiffPage, encode_tiff};

/// Returns the size of the image that tesseract gets for a page of this size.
#[track_caller]
fn rendered_page_size(boxes: &str) -> String {
    let run = ScriptRun::new();
    let header_file = run.sibling_path("seen");
    let script = format!("head -c 40 \"$1\" | head -n 2 >'{}'; echo words", header_file.display());
    let run = run.with_fake_program("tesseract", &script);
    run.extract(&PdfBuilder { page_boxes: boxes, ..PdfBuilder::default() }.encode()).assert_text_contains(&["words"]);
    std::fs::read_to_string(header_file).expect("a file").lines().collect::<Vec<_>>().join(" ")
}

#[test]
fn page_over_8000_pixels_is_scaled_down() {
    assert_eq!(rendered_page_size("/MediaBox [0 0 612 792]"), "P5 2550 3300");
    assert_eq!(rendered_page_size("/MediaBox [0 0 595.28 1190.5]"), "P5 2481 4961");
    // 37,500 pixels per side at the default resolution would take gigabytes.
    assert_eq!(rendered_page_size("/MediaBox [0 0 9000 9000]"), "P5 8000 8000");
    assert_eq!(rendered_page_size("/MediaBox [0 0 14400 7200]"), "P5 8000 4000");
    assert_eq!(rendered_page_size("/MediaBox [0 0 12345678 1]"), "P5 8000 1");
    // The crop box determines the size.
    assert_eq!(rendered_page_size("/MediaBox [0 0 9000 9000] /CropBox [0 0 72 72]"), "P5 300 300");
}

#[test]
fn image_over_pixel_limit_is_limit_exceeded() {
    let run = || ScriptRun::new().with_fake_program("tesseract", "echo words");
    let mut png = sample("page.png");
    png[16..24].copy_from_slice(&[0, 0, 0x4e, 0x20, 0, 0, 0x4e, 0x20]);
    run().extract(&png).assert_failure(1, "LIMIT_EXCEEDED");
    // More than shell arithmetic can represent.
    png[16..24].fill(0xff);
    run().extract(&png).assert_failure(1, "LIMIT_EXCEEDED");

    let mut jpeg = sample("page.jpg");
    let frame = jpeg.windows(4).position(|bytes| bytes == b"\xff\xc0\x00\x11").expect("a frame");
    jpeg[frame + 5..frame + 9].fill(0xff);
    run().extract(&jpeg).assert_failure(1, "LIMIT_EXCEEDED");
    // After comments and fill bytes.
    let notes = [&b"\xff\xfe\x00\x06note\xff\xff"[..]; 20].concat();
    run().extract(&[&jpeg[..2], &notes, &jpeg[2..]].concat()).assert_failure(1, "LIMIT_EXCEEDED");

    for is_big in [true, false] {
        let small = || TiffPage { width: 10, height: 10, is_packed: false };
        let mut large = encode_tiff(&[small(), small()], is_big);
        run().extract(&large).assert_text_contains(&["words"]);
        // The width of the second page. Its strip data need not match.
        let at = 8 + 114 + 2 + 8;
        large[at..at + 4].copy_from_slice(&if is_big {
            20_000_000_u32.to_be_bytes()
        } else {
            20_000_000_u32.to_le_bytes()
        });
        run().extract(&large).assert_failure(1, "LIMIT_EXCEEDED");
    }
}

#[test]
fn tiff_pages_are_all_read_up_to_page_limit() {
    let pages = |count| (0..count).map(|_| TiffPage { width: 10, height: 10, is_packed: false }).collect::<Vec<_>>();
    let run = || {
        ScriptRun::new().with_fake_program("tesseract", "shift 4; echo words \"$@\"").with_env("DOCUMENT_PAGES", "3")
    };
    for is_big in [true, false] {
        let three = run().extract(&encode_tiff(&pages(3), is_big));
        three.assert_text_contains(&["page_number=0", "page_number=1", "page_number=2"]);
        assert_eq!(three.stdout_text.matches("words").count(), 3);
        run().extract(&encode_tiff(&pages(4), is_big)).assert_failure(1, "LIMIT_EXCEEDED");
        // The offset of the second page points past the end. Reading only the first page would return half a document.
        let mut dangling = encode_tiff(&pages(2), is_big);
        dangling[8 + 110..8 + 114].fill(0x7f);
        run().extract(&dangling).assert_failure(1, "CORRUPT_DATA");
        // The offset of the next page points to the page itself.
        let mut cyclic = encode_tiff(&pages(1), is_big);
        cyclic.copy_within(4..8, 8 + 110);
        run().extract(&cyclic).assert_failure(1, "LIMIT_EXCEEDED");
    }
}

/// tesseract skips a truncated last page and still exits with 0.
#[test]
fn truncated_tiff_is_corrupt_data() {
    let pages = [(); 2].map(|()| TiffPage { width: 100, height: 100, is_packed: false });
    let whole = encode_tiff(&pages, false);
    ScriptRun::new().extract(&whole).assert_failure(1, "OCR_FAILURE");
    ScriptRun::new().extract(&whole[..whole.len() - 5_000]).assert_failure(1, "CORRUPT_DATA");
}

/// 100 million pixels with three color channels take more than a gigabyte.
#[test]
fn program_over_memory_limit_is_limit_exceeded() {
    let white = encode_tiff(&[TiffPage { width: 10_000, height: 10_000, is_packed: true }], false);
    ScriptRun::new().with_env("DOCUMENT_MEGABYTES", "350").extract(&white).assert_failure(1, "LIMIT_EXCEEDED");
    for (megabytes, kilobytes) in [(None, "2097152"), (Some("512"), "524288")] {
        let mut run = ScriptRun::new();
        let limit_file = run.sibling_path("seen");
        run = run.with_fake_program("pdfinfo", &format!("ulimit -v >'{}'; exit 1", limit_file.display()));
        if let Some(megabytes) = megabytes {
            run = run.with_env("DOCUMENT_MEGABYTES", megabytes);
        }
        run.extract(&sample("letter.pdf")).assert_failure(1, "CORRUPT_DATA");
        assert_eq!(std::fs::read_to_string(limit_file).expect("a file").trim(), kilobytes);
    }
}

/// The script stops collecting and reading at the limit.
#[test]
fn text_over_result_limit_stops_early_with_limit_exceeded() {
    let run = ScriptRun::new();
    let calls = run.sibling_path("calls");
    let script = format!("echo call >>'{}'; head -c 400000 /dev/zero | tr '\\0' a", calls.display());
    let run = run.with_fake_program("pdftotext", &script);
    run.extract(&PdfBuilder { pages: 20, ..PdfBuilder::default() }.encode()).assert_failure(1, "LIMIT_EXCEEDED");
    assert_eq!(std::fs::read_to_string(calls).expect("a file").lines().count(), 3);
    // Endless output.
    let run = ScriptRun::new().with_fake_program("pdftotext", "exec yes 'no end'");
    run.extract(&sample("letter.pdf")).assert_failure(1, "LIMIT_EXCEEDED");
    // Exactly the limit.
    let run = ScriptRun::new().with_fake_program("pdftotext", "head -c 500000 /dev/zero | tr '\\0' a");
    assert_eq!(run.extract(&sample("letter.pdf")).stdout_text.len(), 1_000_000);
}

/// Each program stays within its own time limit.
#[test]
fn document_over_total_time_is_processing_timeout() {
    let run = ScriptRun::new()
        .with_fake_program("pdftotext", "sleep 0.7; echo words")
        .with_env("DOCUMENT_TOTAL_SECONDS", "2");
    run.extract(&PdfBuilder { pages: 20, ..PdfBuilder::default() }.encode()).assert_failure(1, "PROCESSING_TIMEOUT");
    for (program, document) in [("pdfinfo", "letter.pdf"), ("tesseract", "page.png")] {
        let run = ScriptRun::new().with_fake_program(program, "exec sleep 600").with_env("DOCUMENT_TOTAL_SECONDS", "1");
        run.extract(&sample(document)).assert_failure(1, "PROCESSING_TIMEOUT");
    }
}

#[test]
fn invalid_setting_exits_127() {
    for (name, value) in [
        ("DOCUMENT_SECONDS", "soon"),
        ("DOCUMENT_SECONDS", "0"),
        ("DOCUMENT_TOTAL_SECONDS", "-1"),
        ("DOCUMENT_MEGABYTES", "08"),
        ("DOCUMENT_PAGES", "12345678901234567890"),
        ("DOCUMENT_LANGUAGES", "there_is_no_such"),
    ] {
        let output = ScriptRun::new().with_env(name, value).extract(&sample("page.png"));
        assert_eq!((output.exit_code, output.stderr.lines().count()), (Some(127), 1), "{name}={value}: {output:?}");
    }
}
