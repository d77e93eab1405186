//! What sounds like damage and is none.

use crate::pdf::{LINE, Pdf};
use crate::run::{Run, reads, sample};

/// tesseract reads this part of a scan, while Leptonica speaks of an `Error in pixScanForForeground`.
#[test]
fn a_part_of_a_scan_is_read() {
    reads(include_bytes!("crop.png"), &["boxes of can"]);
}

/// The same, whatever the version at hand says.
#[test]
fn errors_of_looking_are_not_errors_of_reading() {
    let script = "echo 'Error in boxClipToRectangle: box outside rectangle' >&2
echo 'Error in pixScanForForeground: invalid box' >&2
echo 'Corrupt JPEG data: 12 extraneous bytes before marker 0xd9' >&2
echo 'libpng warning: iCCP: known incorrect sRGB profile' >&2
echo words";
    for name in ["page.png", "page.jpg", "page.tif", "scan.pdf"] {
        Run::new().instead("tesseract", script).of(&sample(name)).has(&["words"]);
    }
    let script = "echo 'Error in pixReadFromTiffStream: read fail at line 77' >&2; echo words";
    for name in ["page.png", "page.jpg", "page.tif"] {
        Run::new().instead("tesseract", script).of(&sample(name)).is(1, "CORRUPT_DATA");
    }
}

/// What was rendered here is not damaged, whatever is said of it; if it cannot be read, that is for OCR to say.
#[test]
fn a_rendered_page_is_not_judged_as_input() {
    let says = "echo 'Error in pixReadStreamPnm: cannot be read; libpng error' >&2";
    Run::new().instead("tesseract", &format!("{says}; echo words")).of(&sample("scan.pdf")).has(&["words"]);
    Run::new().instead("tesseract", &format!("{says}; exit 1")).of(&sample("scan.pdf")).is(1, "OCR_FAILURE");
}

/// Bytes after the end, or before it, that every reader passes over.
#[test]
fn an_image_may_have_more_than_it_needs() {
    let jpeg = sample("page.jpg");
    let (body, end) = jpeg.split_at(jpeg.len() - 2);
    reads(&[body, &[0; 18], end].concat(), &["brass telescope"]);
    reads(&[&jpeg[..], &[0; 300]].concat(), &["brass telescope"]);
    reads(&[&sample("page.png")[..], b"and more"].concat(), &["brass telescope"]);
    // A picture within the picture's notes, of 65535 by 65535.
    let small = b"\xff\xe1\x00\x0d\xff\xc0\x00\x0b\x08\xff\xff\xff\xff\x01\x00";
    reads(&[&jpeg[..2], small, &jpeg[2..]].concat(), &["brass telescope"]);
}

#[test]
fn a_title_of_several_lines_is_a_title() {
    let title = "x\\nPages: 7\\nPage    1 size: 1 x 1 pts\\nPages: 0";
    reads(&Pdf { title, lines: 1, ..Pdf::default() }.bytes(), &[LINE]);
}
