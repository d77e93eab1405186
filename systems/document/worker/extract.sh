#!/bin/sh
# Extracts the text of a document: a PDF with text, a PDF of scanned pages, or an image (PNG, JPEG, TIFF).
#
#   onceward work document.job --result text -- systems/document/worker/extract.sh
#
# Reads the document from standard input and writes its text to standard output. After a failure, the last line on standard error is
# `CODE: what happened`. It never quotes the document or the output of a program (DOC-15).
#
#   UNSUPPORTED_FORMAT  neither a PDF nor one of these images, or an encrypted PDF
#   CORRUPT_DATA        the format is known, but the document is truncated or damaged
#   SIZE_EXCEEDED       more than 50 MB
#   LIMIT_EXCEEDED      more than 2000 pages; more scanned pages than DOCUMENT_PAGES; an image of more than 100 million pixels; more text than
#                       a result may have; more memory than DOCUMENT_MEGABYTES
#   OCR_FAILURE         tesseract cannot read the image, or finds no word on any page
#   PROCESSING_TIMEOUT  the document took longer than DOCUMENT_TOTAL_SECONDS
#   TIMEOUT             a program took longer than DOCUMENT_SECONDS; exit 75: retryable
#   SYSTEM_TRANSIENT    no space for temporary files, or a program was killed; exit 75: retryable
#
#   DOCUMENT_LANGUAGES      languages for tesseract: `eng` by default (`deu+fra` needs their packages)
#   DOCUMENT_PAGES          maximum number of scanned pages: 50
#   DOCUMENT_SECONDS        time limit of one program, which works on one page: 120
#   DOCUMENT_TOTAL_SECONDS  time limit of the whole document: 900
#   DOCUMENT_MEGABYTES      memory limit of one program, as `ulimit -v` counts it: 2048
#
# If a program (poppler-utils, tesseract-ocr, coreutils) is missing or a setting is invalid, the script exits with 127: the worker yields the
# job and stops.
set -u

largest=52428800 # bytes of a document
longest=1000000  # bytes of its text; the limits of worker and server are slightly higher
pixels=100000000 # of an input image
side=8000        # pixels per side of a rendered page
most=2000        # pages
languages=${DOCUMENT_LANGUAGES:-eng}
pages=${DOCUMENT_PAGES:-50}
seconds=${DOCUMENT_SECONDS:-120}
total=${DOCUMENT_TOTAL_SECONDS:-900}
megabytes=${DOCUMENT_MEGABYTES:-2048}

cannot() { # MESSAGE
    ended=yes
    echo "$1" >&2
    exit 127
}

for program in pdfinfo pdftotext pdftoppm tesseract timeout; do
    command -v "$program" >/dev/null 2>&1 ||
        cannot "$program is not installed; install poppler-utils, tesseract-ocr and coreutils"
done
for number in "$pages" "$seconds" "$total" "$megabytes"; do
    case $number in
    '' | *[!0-9]* | 0?* | ?????????*) cannot "a DOCUMENT_ setting is not a valid whole number: '$number'" ;;
    esac
done
[ "$seconds" -gt 0 ] && [ "$total" -gt 0 ] && [ "$megabytes" -gt 0 ] || cannot "a DOCUMENT_ setting for time or memory is 0; set it to at least 1"
here=$(dirname -- "$0")
[ -r "$here/programs.sh" ] && [ -r "$here/measure.sh" ] || cannot "programs.sh or measure.sh is missing beside extract.sh"
# shellcheck source=systems/document/worker/programs.sh
. "$here/programs.sh"
# shellcheck source=systems/document/worker/measure.sh
. "$here/measure.sh"

has_words() { # FILE
    LC_ALL=C grep -aq '[[:alnum:]]' "$1" || LC_ALL=C grep -aq "$(printf '[\200-\377]')" "$1"
}

ocr() { # IMAGE NAME OPTION...
    image=$1 name=$2
    shift 2
    run "$longest" "$folder/page" tesseract "$image" - -l "$languages" "$@"
    # tesseract reads some damaged images up to the damage and exits with 0. Only messages of the file readers show it: the rest of
    # Leptonica prints errors for good pages, too. A page that the script rendered itself is not damaged.
    if [ "$image" = "$document" ] && said 'error in (pixread|findfile|findtiff|fopenread)|libpng error|premature end of jpeg'; then
        fail CORRUPT_DATA "$name is truncated or damaged"
    fi
    ! said "couldn't load any languages" || cannot "tesseract has no data for '$languages'"
    [ "$status" -eq 0 ] || fail OCR_FAILURE "tesseract cannot read $name"
}

add() { # appends `page` to the text
    cat "$folder/page" 2>/dev/null >>"$text" || no_room
    [ "$(wc -c <"$text")" -le "$longest" ] || fail LIMIT_EXCEEDED "the text has more than $longest bytes"
}

# Writes the text and ends the script. Fails if the text has no words.
tell() { # WHERE
    has_words "$text" || fail OCR_FAILURE "no words were found $1"
    tr -d '\000' <"$text" &
    running=$!
    wait "$running" || fail SYSTEM_TRANSIENT "the text could not be written" 75
    running='' ended=yes
    exit 0
}

document=$folder/document
text=$folder/text

# Read one byte more than allowed, to detect a document that is too large.
exec 3<&0
head -c $((largest + 1)) 2>/dev/null <&3 >"$document" &
running=$!
wait "$running" || no_room
running=
exec 3<&-
[ "$(wc -c <"$document")" -le "$largest" ] || fail SIZE_EXCEEDED "more than $largest bytes"

# Detect the format by the first bytes, because neither name nor content type is known. A PDF may start with up to a kilobyte of other bytes.
case $(head -c 8 "$document" | od -An -v -tx1 | tr -d ' \n') in
89504e470d0a1a0a) kind=PNG ;;
ffd8ff*) kind=JPEG ;;
49492a00* | 4d4d002a*) kind=TIFF ;;
*)
    head -c 1024 "$document" | LC_ALL=C grep -aq '%PDF-' || fail UNSUPPORTED_FORMAT "neither a PDF nor a PNG, JPEG or TIFF image"
    kind=PDF
    ;;
esac

if [ "$kind" != PDF ]; then
    measure "$kind"
    # One page at a time, so that each has its own time limit.
    page=0
    while [ "$page" -lt "$images" ]; do
        ocr "$document" "the $kind image" -c tessedit_page_number="$page"
        add
        page=$((page + 1))
    done
    tell "in the image"
fi

# `pdfinfo` and `pdftotext` exit with 1 for both truncated and encrypted files; only their messages differ.
run 1000000 "$folder/info" pdfinfo -f 1 -l "$most" "$document" || {
    said 'incorrect password' && fail UNSUPPORTED_FORMAT "the PDF is encrypted"
    fail CORRUPT_DATA "the PDF is truncated or damaged"
}
# A reader that repairs a truncated file may find only half of its pages, so a file without its end marker is refused.
tail -c 2048 "$document" | LC_ALL=C grep -aq '%%EOF' || fail CORRUPT_DATA "the PDF is truncated: it has no end marker"

# Lines of the document's title precede the lines of `pdfinfo` itself, so the last match is correct.
count=$(sed -n 's/^Pages: *\([0-9][0-9]*\)$/\1/p' "$folder/info" | tail -n 1)
[ -n "$count" ] && [ "$count" -gt 0 ] || fail CORRUPT_DATA "the PDF has no pages"
[ "$count" -le "$most" ] || fail LIMIT_EXCEEDED "the PDF has $count pages; at most $most are allowed"

# Prints the rendering options of a page. Large pages, and pages of unknown size, are scaled down. `pdfinfo` prints the size of the crop box.
rendering() { # PAGE
    points='\([0-9]\{1,4\}\)\(\.[0-9]*\)\{0,1\}'
    size=$(sed -n "s/^Page *$1 size: *$points x $points pts.*/\1 \3/p" "$folder/info" | tail -n 1)
    width=${size% *} height=${size#* } least=$((side * 72 / 300))
    if [ -n "$size" ] && [ "$width" -lt "$least" ] && [ "$height" -lt "$least" ]; then echo "-r 300"; else echo "-scale-to $side"; fi
}

# Page by page, because a document may have both kinds: a page without text is a scan, which is rendered and read by OCR.
page=1 scanned=0
while [ "$page" -le "$count" ]; do
    run "$longest" "$folder/page" pdftotext -enc UTF-8 -f "$page" -l "$page" "$document" - || case $status in
    3) fail UNSUPPORTED_FORMAT "the PDF does not permit text extraction" ;;
    *) fail CORRUPT_DATA "the text of page $page cannot be read" ;;
    esac
    if ! has_words "$folder/page"; then
        scanned=$((scanned + 1))
        [ "$scanned" -le "$pages" ] || fail LIMIT_EXCEEDED "more than $pages scanned pages"
        # shellcheck disable=SC2046 # They are two words.
        run $((side * side + 1000)) "$folder/image" \
            pdftoppm -gray -singlefile -cropbox $(rendering "$page") -f "$page" -l "$page" "$document" ||
            fail CORRUPT_DATA "page $page cannot be rendered"
        [ -s "$folder/image" ] || fail CORRUPT_DATA "page $page cannot be rendered"
        ocr "$folder/image" "page $page" --dpi 300
        rm -f "$folder/image"
    fi
    add
    page=$((page + 1))
done
tell "on the pages"
