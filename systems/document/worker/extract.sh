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
#   LIMIT_EXCEEDED      more than 2000 pages, or more scanned ones than are read; an image of more than 100 million pixels; more text than a
#                       result may have; more memory than a program may use
#   OCR_FAILURE         tesseract cannot read the image, or found not a word on any of the pages
#   PROCESSING_TIMEOUT  the whole of it took longer than it may
#   TIMEOUT             one of the programs did; exit 75: it may be tried again
#   SYSTEM_TRANSIENT    no room for its temporary files, a program that somebody killed; exit 75
#
#   DOCUMENT_LANGUAGES      what tesseract reads: `eng` by default (`deu+fra` needs their packages)
#   DOCUMENT_PAGES          how many scanned pages are read: 50
#   DOCUMENT_SECONDS        the time of one program, which works on one page: 120
#   DOCUMENT_TOTAL_SECONDS  the time of the whole document: 900
#   DOCUMENT_MEGABYTES      the memory of one program, as `ulimit -v` counts it: 2048
#
# Without its programs (poppler-utils, tesseract-ocr, coreutils) it exits with 127: the worker gives the job back and stops. So it does where
# one of the settings above cannot be used.
set -u

largest=52428800 # bytes of a document
longest=1000000  # bytes of its text: the worker and the server take a little more
pixels=100000000 # of an image that came
side=8000        # pixels of a page that is rendered here, each way
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
        cannot "$program is not installed: it comes with poppler-utils, tesseract-ocr or coreutils"
done
for number in "$pages" "$seconds" "$total" "$megabytes"; do
    case $number in
    '' | *[!0-9]* | 0?* | ?????????*) cannot "a DOCUMENT_ setting is no whole number that can be used: '$number'" ;;
    esac
done
[ "$seconds" -gt 0 ] && [ "$total" -gt 0 ] && [ "$megabytes" -gt 0 ] || cannot "no time or no memory is given by a DOCUMENT_ setting"
here=$(dirname -- "$0")
[ -r "$here/programs.sh" ] && [ -r "$here/measure.sh" ] || cannot "programs.sh and measure.sh are to be beside extract.sh"
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
    # Some damaged images are read as far as they go, with an exit code of 0. Only what the readers of files say tells: the rest of
    # Leptonica speaks of errors on good pages, too. What was rendered here came from nobody.
    if [ "$image" = "$document" ] && said 'error in (pixread|findfile|findtiff|fopenread)|libpng error|premature end of jpeg'; then
        fail CORRUPT_DATA "$name is truncated or damaged"
    fi
    ! said "couldn't load any languages" || cannot "tesseract has no data for '$languages'"
    [ "$status" -eq 0 ] || fail OCR_FAILURE "tesseract cannot read $name"
}

add() { # what is in `page` to the text
    cat "$folder/page" 2>/dev/null >>"$text" || no_room
    [ "$(wc -c <"$text")" -le "$longest" ] || fail LIMIT_EXCEEDED "more text than the $longest bytes that a result may have"
}

# The text, if there is any: the end.
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

# One byte more than may be, to tell.
exec 3<&0
head -c $((largest + 1)) 2>/dev/null <&3 >"$document" &
running=$!
wait "$running" || no_room
running=
exec 3<&-
[ "$(wc -c <"$document")" -le "$largest" ] || fail SIZE_EXCEEDED "more than $largest bytes"

# What it is, by its first bytes; names and content types are not to be had here. A PDF may have a kilobyte of anything before it.
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
    # One by one, so that each has its time.
    page=0
    while [ "$page" -lt "$images" ]; do
        ocr "$document" "the $kind image" -c tessedit_page_number="$page"
        add
        page=$((page + 1))
    done
    tell "in the image"
fi

# `pdfinfo` and `pdftotext` end with 1 for what is truncated and what is encrypted alike; what they say tells them apart.
run 1000000 "$folder/info" pdfinfo -f 1 -l "$most" "$document" || {
    said 'incorrect password' && fail UNSUPPORTED_FORMAT "the PDF is encrypted"
    fail CORRUPT_DATA "the PDF cannot be read: it is truncated or damaged"
}
# A reader that mends a truncated file may find half of its pages. Half a document is not the document.
tail -c 2048 "$document" | LC_ALL=C grep -aq '%%EOF' || fail CORRUPT_DATA "the PDF has no end: it is truncated"

# Lines of a title come before what `pdfinfo` says of its own, so the last one is right.
count=$(sed -n 's/^Pages: *\([0-9][0-9]*\)$/\1/p' "$folder/info" | tail -n 1)
[ -n "$count" ] && [ "$count" -gt 0 ] || fail CORRUPT_DATA "the PDF has no pages"
[ "$count" -le "$most" ] || fail LIMIT_EXCEEDED "$count pages, and at most $most are read"

# How a page is rendered: large ones smaller than they are, and those whose size is not told. `pdfinfo` tells that of the crop box.
rendering() { # PAGE
    points='\([0-9]\{1,4\}\)\(\.[0-9]*\)\{0,1\}'
    size=$(sed -n "s/^Page *$1 size: *$points x $points pts.*/\1 \3/p" "$folder/info" | tail -n 1)
    width=${size% *} height=${size#* } least=$((side * 72 / 300))
    if [ -n "$size" ] && [ "$width" -lt "$least" ] && [ "$height" -lt "$least" ]; then echo "-r 300"; else echo "-scale-to $side"; fi
}

# Page by page, since a document may have some of each kind: a page without text was scanned, and is rendered and looked at.
page=1 scanned=0
while [ "$page" -le "$count" ]; do
    run "$longest" "$folder/page" pdftotext -enc UTF-8 -f "$page" -l "$page" "$document" - || case $status in
    3) fail UNSUPPORTED_FORMAT "the PDF does not permit its text to be taken" ;;
    *) fail CORRUPT_DATA "the text of page $page cannot be read" ;;
    esac
    if ! has_words "$folder/page"; then
        scanned=$((scanned + 1))
        [ "$scanned" -le "$pages" ] || fail LIMIT_EXCEEDED "more scanned pages than the $pages that are read"
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
