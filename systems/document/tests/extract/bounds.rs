//! Documents that are small, and would take a machine for themselves.

use crate::image::{Page, tiff};
use crate::pdf::Pdf;
use crate::run::{Run, sample};

/// The size of the picture that tesseract is given for a page of this size.
#[track_caller]
fn rendered(boxes: &str) -> String {
    let run = Run::new();
    let seen = run.place("seen");
    let script = format!("head -c 40 \"$1\" | head -n 2 >'{}'; echo words", seen.display());
    let run = run.instead("tesseract", &script);
    run.of(&Pdf { boxes, ..Pdf::default() }.bytes()).has(&["words"]);
    std::fs::read_to_string(seen).expect("a file").lines().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_large_page_is_made_smaller() {
    assert_eq!(rendered("/MediaBox [0 0 612 792]"), "P5 2550 3300");
    assert_eq!(rendered("/MediaBox [0 0 595.28 1190.5]"), "P5 2481 4961");
    // 37,500 pixels each way at the usual resolution, which are gigabytes.
    assert_eq!(rendered("/MediaBox [0 0 9000 9000]"), "P5 8000 8000");
    assert_eq!(rendered("/MediaBox [0 0 14400 7200]"), "P5 8000 4000");
    assert_eq!(rendered("/MediaBox [0 0 12345678 1]"), "P5 8000 1");
    // What counts is what is seen of it.
    assert_eq!(rendered("/MediaBox [0 0 9000 9000] /CropBox [0 0 72 72]"), "P5 300 300");
}

#[test]
fn an_image_of_too_many_pixels_is_not_opened() {
    let opened = || Run::new().instead("tesseract", "echo words");
    let mut png = sample("page.png");
    png[16..24].copy_from_slice(&[0, 0, 0x4e, 0x20, 0, 0, 0x4e, 0x20]);
    opened().of(&png).is(1, "LIMIT_EXCEEDED");
    // As many as a shell cannot count.
    png[16..24].fill(0xff);
    opened().of(&png).is(1, "LIMIT_EXCEEDED");

    let mut jpeg = sample("page.jpg");
    let frame = jpeg.windows(4).position(|bytes| bytes == b"\xff\xc0\x00\x11").expect("a frame");
    jpeg[frame + 5..frame + 9].fill(0xff);
    opened().of(&jpeg).is(1, "LIMIT_EXCEEDED");
    // Behind notes, and bytes that fill.
    let notes = [&b"\xff\xfe\x00\x06note\xff\xff"[..]; 20].concat();
    opened().of(&[&jpeg[..2], &notes, &jpeg[2..]].concat()).is(1, "LIMIT_EXCEEDED");

    for is_big in [true, false] {
        let small = || Page { width: 10, height: 10, is_packed: false };
        let mut large = tiff(&[small(), small()], is_big);
        opened().of(&large).has(&["words"]);
        // The width of the second page; what lies there does not matter any more.
        let at = 8 + 114 + 2 + 8;
        large[at..at + 4].copy_from_slice(&if is_big {
            20_000_000_u32.to_be_bytes()
        } else {
            20_000_000_u32.to_le_bytes()
        });
        opened().of(&large).is(1, "LIMIT_EXCEEDED");
    }
}

#[test]
fn a_tiff_has_its_pages() {
    let pages = |count| (0..count).map(|_| Page { width: 10, height: 10, is_packed: false }).collect::<Vec<_>>();
    let run = || Run::new().instead("tesseract", "shift 4; echo words \"$@\"").with("DOCUMENT_PAGES", "3");
    for is_big in [true, false] {
        let three = run().of(&tiff(&pages(3), is_big));
        three.has(&["page_number=0", "page_number=1", "page_number=2"]);
        assert_eq!(three.text.matches("words").count(), 3);
        run().of(&tiff(&pages(4), is_big)).is(1, "LIMIT_EXCEEDED");
        // A second page that is said to be where nothing is: with the first alone it would be half a document.
        let mut lost = tiff(&pages(2), is_big);
        lost[8 + 110..8 + 114].fill(0x7f);
        run().of(&lost).is(1, "CORRUPT_DATA");
        // One that leads back to itself.
        let mut round = tiff(&pages(1), is_big);
        round.copy_within(4..8, 8 + 110);
        run().of(&round).is(1, "LIMIT_EXCEEDED");
    }
}

/// What is cut off at the end of the last page, which tesseract leaves out without a word in its exit code.
#[test]
fn a_tiff_that_is_cut_is_corrupt() {
    let pages = [(); 2].map(|()| Page { width: 100, height: 100, is_packed: false });
    let whole = tiff(&pages, false);
    Run::new().of(&whole).is(1, "OCR_FAILURE");
    Run::new().of(&whole[..whole.len() - 5_000]).is(1, "CORRUPT_DATA");
}

/// A hundred million pixels of three colours take more than a gigabyte.
#[test]
fn a_program_has_so_much_memory() {
    let white = tiff(&[Page { width: 10_000, height: 10_000, is_packed: true }], false);
    Run::new().with("DOCUMENT_MEGABYTES", "350").of(&white).is(1, "LIMIT_EXCEEDED");
    for (megabytes, kilobytes) in [(None, "2097152"), (Some("512"), "524288")] {
        let mut run = Run::new();
        let seen = run.place("seen");
        run = run.instead("pdfinfo", &format!("ulimit -v >'{}'; exit 1", seen.display()));
        if let Some(megabytes) = megabytes {
            run = run.with("DOCUMENT_MEGABYTES", megabytes);
        }
        run.of(&sample("letter.pdf")).is(1, "CORRUPT_DATA");
        assert_eq!(std::fs::read_to_string(seen).expect("a file").trim(), kilobytes);
    }
}

/// A result has so many bytes; more are not gathered, and not read.
#[test]
fn more_text_than_a_result_can_have_ends_early() {
    let run = Run::new();
    let calls = run.place("calls");
    let script = format!("echo call >>'{}'; head -c 400000 /dev/zero | tr '\\0' a", calls.display());
    let run = run.instead("pdftotext", &script);
    run.of(&Pdf { pages: 20, ..Pdf::default() }.bytes()).is(1, "LIMIT_EXCEEDED");
    assert_eq!(std::fs::read_to_string(calls).expect("a file").lines().count(), 3);
    // A page that never ends.
    let run = Run::new().instead("pdftotext", "exec yes 'no end'");
    run.of(&sample("letter.pdf")).is(1, "LIMIT_EXCEEDED");
    // As much as can be.
    let run = Run::new().instead("pdftotext", "head -c 500000 /dev/zero | tr '\\0' a");
    assert_eq!(run.of(&sample("letter.pdf")).text.len(), 1_000_000);
}

/// Each program is quick enough; all of them are not.
#[test]
fn a_document_has_so_much_time() {
    let run = Run::new().instead("pdftotext", "sleep 0.7; echo words").with("DOCUMENT_TOTAL_SECONDS", "2");
    run.of(&Pdf { pages: 20, ..Pdf::default() }.bytes()).is(1, "PROCESSING_TIMEOUT");
    for (program, document) in [("pdfinfo", "letter.pdf"), ("tesseract", "page.png")] {
        let run = Run::new().instead(program, "exec sleep 600").with("DOCUMENT_TOTAL_SECONDS", "1");
        run.of(&sample(document)).is(1, "PROCESSING_TIMEOUT");
    }
}

#[test]
fn settings_that_cannot_be_used_stop_the_worker() {
    for (name, value) in [
        ("DOCUMENT_SECONDS", "soon"),
        ("DOCUMENT_SECONDS", "0"),
        ("DOCUMENT_TOTAL_SECONDS", "-1"),
        ("DOCUMENT_MEGABYTES", "08"),
        ("DOCUMENT_PAGES", "12345678901234567890"),
        ("DOCUMENT_LANGUAGES", "there_is_no_such"),
    ] {
        let ended = Run::new().with(name, value).of(&sample("page.png"));
        assert_eq!((ended.exit, ended.said.lines().count()), (Some(127), 1), "{name}={value}: {ended:?}");
    }
}
