#!/bin/sh
# The text of a document: a PDF with text, a PDF of scanned pages, or an image (PNG, JPEG, TIFF).
#
#   onceward work document.job --result text -- systems/document/worker/extract.sh
#
# The document comes on standard input, its text goes to standard output. A failure is told by the last line on standard error, as
# `CODE: what happened`, and never in words of the document: what the programs say is not passed on (DOC-15).
#
#   UNSUPPORTED_FORMAT  neither a PDF nor one of these images; or a PDF that is encrypted, which nobody here has the password for
#   CORRUPT_DATA        it begins like one of them and cannot be read: truncated, or damaged
#   SIZE_EXCEEDED       more than 50 MB
#   LIMIT_EXCEEDED      more than 2000 pages, or more scanned ones than are read (DOCUMENT_PAGES, 50 by default)
#   OCR_FAILURE         tesseract cannot read the image, or found not a word on any of the pages
#   TIMEOUT             a program took longer than it may (DOCUMENT_SECONDS, 120 by default); exit 75: it may be tried again
#   SYSTEM_TRANSIENT    no room for its temporary files; exit 75
#
# DOCUMENT_LANGUAGES says what tesseract reads, `eng` by default (`deu+fra` needs their packages).
#
# Without its programs (poppler-utils, tesseract-ocr) it exits with 127: the worker gives the job back and stops.
set -u

limit=52428800
most=2000
pages=${DOCUMENT_PAGES:-50}
seconds=${DOCUMENT_SECONDS:-120}
languages=${DOCUMENT_LANGUAGES:-eng}

fail() { # CODE MESSAGE [EXIT]
    printf '%s: %s\n' "$1" "$2" >&2
    exit "${3:-1}"
}

for program in pdfinfo pdftotext pdftoppm tesseract timeout; do
    command -v "$program" >/dev/null 2>&1 || {
        echo "$program is not installed: it comes with poppler-utils, tesseract-ocr or coreutils" >&2
        exit 127
    }
done

# Private, and gone in every case but SIGKILL, whose remains begin with the same name.
umask 077
folder=$(mktemp -d "${TMPDIR:-/tmp}/onceward-document.XXXXXX") || fail SYSTEM_TRANSIENT "no room for temporary files" 75
trap 'rm -rf "$folder"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT HUP

# Runs one of the programs. What it says is kept to tell failures apart, and goes no further. A program that hangs is the only failure that
# may pass.
run() {
    timeout --foreground --kill-after=5 "$seconds" "$@" 2>"$folder/said"
    status=$?
    case $status in
    124 | 137) fail TIMEOUT "$1 took longer than $seconds seconds" 75 ;;
    esac
    return "$status"
}

said() { # PATTERN
    LC_ALL=C grep -aqiE "$1" "$folder/said"
}

has_words() { # FILE
    LC_ALL=C grep -aq '[[:alnum:]]' "$1" || LC_ALL=C grep -aq "$(printf '[\200-\377]')" "$1"
}

ocr() { # IMAGE NAME, to standard output
    OMP_THREAD_LIMIT=1 run tesseract "$1" - -l "$languages"
    # It reads what it can of a damaged image, and ends well.
    said 'cannot be read|error in (pix|find|lept)|png error|premature end|corrupt' && fail CORRUPT_DATA "$2 is truncated or damaged"
    [ "$status" -eq 0 ] || fail OCR_FAILURE "tesseract cannot read $2"
}

document=$folder/document
text=$folder/text

# One byte more than may be, to tell.
head -c $((limit + 1)) >"$document" || fail SYSTEM_TRANSIENT "no room for the document" 75
size=$(wc -c <"$document")
[ "$size" -le "$limit" ] || fail SIZE_EXCEEDED "more than $limit bytes"

# What it is, by its first bytes; names and content types are not to be had here. A PDF may have a kilobyte of anything before it.
begins=$(head -c 8 "$document" | od -An -v -tx1 | tr -d ' \n')
case $begins in
89504e470d0a1a0a) kind=PNG ;;
ffd8ff*) kind=JPEG ;;
49492a00* | 4d4d002a*) kind=TIFF ;;
*)
    if head -c 1024 "$document" | LC_ALL=C grep -aq '%PDF-'; then kind=PDF; else kind=; fi
    ;;
esac
[ -n "$kind" ] || fail UNSUPPORTED_FORMAT "neither a PDF nor a PNG, JPEG or TIFF image"

if [ "$kind" != PDF ]; then
    ocr "$document" "the $kind image" >"$text"
    has_words "$text" || fail OCR_FAILURE "no words were found in the image"
    tr -d '\000' <"$text"
    exit 0
fi

# `pdfinfo` and `pdftotext` end with 1 for what is truncated and what is encrypted alike; what they say tells them apart.
run pdfinfo "$document" >"$folder/info" || {
    said 'incorrect password' && fail UNSUPPORTED_FORMAT "the PDF is encrypted"
    fail CORRUPT_DATA "the PDF cannot be read: it is truncated or damaged"
}
# A reader that mends a truncated file may find half of its pages. Half a document is not the document.
tail -c 2048 "$document" | LC_ALL=C grep -aq '%%EOF' || fail CORRUPT_DATA "the PDF has no end: it is truncated"

count=$(sed -n 's/^Pages: *\([0-9][0-9]*\)$/\1/p' "$folder/info")
[ -n "$count" ] && [ "$count" -gt 0 ] || fail CORRUPT_DATA "the PDF has no pages"
[ "$count" -le "$most" ] || fail LIMIT_EXCEEDED "$count pages, and at most $most are read"

# Page by page, since a document may have some of each kind: a page without text was scanned, and is rendered and looked at.
: >"$text"
page=1 scanned=0
while [ "$page" -le "$count" ]; do
    run pdftotext -enc UTF-8 -f "$page" -l "$page" "$document" "$folder/page.txt" || case $status in
    3) fail UNSUPPORTED_FORMAT "the PDF does not permit its text to be taken" ;;
    *) fail CORRUPT_DATA "the text of page $page cannot be read" ;;
    esac
    if ! has_words "$folder/page.txt"; then
        scanned=$((scanned + 1))
        [ "$scanned" -le "$pages" ] || fail LIMIT_EXCEEDED "more scanned pages than the $pages that are read"
        run pdftoppm -r 300 -gray -singlefile -png -f "$page" -l "$page" "$document" "$folder/page" ||
            fail CORRUPT_DATA "page $page cannot be rendered"
        [ -s "$folder/page.png" ] || fail CORRUPT_DATA "page $page cannot be rendered"
        ocr "$folder/page.png" "page $page" >"$folder/page.txt"
        rm -f "$folder/page.png"
    fi
    cat "$folder/page.txt" >>"$text"
    page=$((page + 1))
done
has_words "$text" || fail OCR_FAILURE "no words were found on the pages"
tr -d '\000' <"$text"
