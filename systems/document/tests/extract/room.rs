//! A temporary folder that is full says nothing about the document: it is never told as half of its text, nor as its fault.

use crate::pdf::{LINE, Pdf};
use crate::run::{Run, sample};

/// Where each part of the work meets the end of the disk: the document that comes, a page's own text, all of the text.
#[test]
fn a_full_folder_is_never_half_a_text() {
    let document = Pdf { pages: 6, lines: 60, ..Pdf::default() }.bytes();
    let blocks = |bytes: usize| u32::try_from(bytes / 512).expect("small");
    let whole = Run::new().of(&document);
    whole.has(&[LINE]);
    assert_eq!(whole.text.matches(LINE).count(), 6 * 60);
    assert!(whole.text.len() > 3 * document.len(), "the text is what is large");
    // In the document, at its end, and in each of the pages.
    for share in 0..6 {
        let room =
            blocks(document.len() - 1).max(blocks(whole.text.len() * share / 6)) / if share == 0 { 2 } else { 1 };
        Run::new().with_room_for(room).of(&document).is(75, "SYSTEM_TRANSIENT");
    }
    let enough = Run::new().with_room_for(blocks(whole.text.len()) + 1).of(&document);
    assert_eq!((enough.exit, enough.text), (Some(0), whole.text));
}

/// A page's own text is cut by the disk, which `pdftotext` would not tell.
#[test]
fn a_full_folder_is_never_half_a_page() {
    let run = || Run::new().instead("pdftotext", "head -c 20000 /dev/zero | tr '\\0' a");
    run().with_room_for(20).of(&sample("letter.pdf")).is(75, "SYSTEM_TRANSIENT");
    assert_eq!(run().with_room_for(100).of(&sample("letter.pdf")).text.len(), 40_000);
}

#[test]
fn a_full_folder_is_never_half_a_picture() {
    let scan = sample("scan.pdf");
    let room = u32::try_from(scan.len() / 512).expect("small") + 1;
    Run::new().with_room_for(room).of(&scan).is(75, "SYSTEM_TRANSIENT");
    let run = Run::new().instead("tesseract", "head -c 20000 /dev/zero | tr '\\0' a");
    run.with_room_for(20).of(&sample("page.tif")).is(75, "SYSTEM_TRANSIENT");
}

/// What a program says tells failures apart: with half of it they cannot be.
#[test]
fn a_full_folder_is_never_damage() {
    let run = || Run::new().instead("pdfinfo", "head -c 20000 /dev/zero >&2; echo 'Incorrect password' >&2; exit 1");
    run().with_room_for(20).of(&sample("letter.pdf")).is(75, "SYSTEM_TRANSIENT");
    run().of(&sample("letter.pdf")).is(1, "UNSUPPORTED_FORMAT");
}

#[test]
fn no_folder_at_all_is_no_damage() {
    let run = Run::new();
    let nowhere = run.place("nowhere").display().to_string();
    run.with("TMPDIR", &nowhere).of(&sample("letter.pdf")).is(75, "SYSTEM_TRANSIENT");
}

#[test]
fn what_nobody_takes_is_no_damage() {
    let run = Run::new().instead("tr", "cat >/dev/null; exit 1");
    let mut document = sample("letter.pdf");
    // Other uses of `tr` are on the way of images only, which are told by their first bytes.
    document.splice(0..0, *b"\n");
    run.of(&document).is(75, "SYSTEM_TRANSIENT");
}
