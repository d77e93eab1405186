# Part of extract.sh: determines the size of an image from its header, before a program allocates memory for it.
# shellcheck shell=sh disable=SC2154 # extract.sh defines `document`, `pages`, `pixels` and `fail`.
#
# If the header cannot be parsed, tesseract decides; its memory and time are limited.

bytes() { # FROM COUNT; prints them as numbers
    od -An -v -tu1 -j "$1" -N "$2" "$document" 2>/dev/null
}

number() { # BYTE..., in the byte order of the file
    number=0 weight=1
    for byte; do
        if [ "$order" = big ]; then number=$((number * 256 + byte)); else number=$((number + byte * weight)); fi
        weight=$((weight * 256))
    done
}

fits() { # WIDTH HEIGHT of one more image
    images=$((images + 1))
    [ "$images" -le "$pages" ] || fail LIMIT_EXCEEDED "more than $pages scanned pages"
    # Each alone first, because their product may overflow shell arithmetic.
    [ "$1" -le "$pixels" ] && [ "$2" -le "$pixels" ] && [ $(($1 * $2)) -le "$pixels" ] ||
        fail LIMIT_EXCEEDED "an image has more than $pixels pixels"
}

measure() { # KIND; sets `images` to the number of images
    images=0 order=big
    case $1 in
    PNG) measure_png ;;
    JPEG) measure_jpeg ;;
    TIFF) measure_tiff ;;
    esac
    [ "$images" -gt 0 ] || fits 0 0
}

measure_png() {
    # shellcheck disable=SC2046
    set -- $(bytes 16 8)
    [ $# -eq 8 ] || return 0
    number "$1" "$2" "$3" "$4"
    width=$number
    number "$5" "$6" "$7" "$8"
    fits "$width" "$number"
}

# Walks the segments up to the frame header, which contains the size. A photograph has about ten segments.
measure_jpeg() {
    at=2 segments=0
    while [ "$segments" -lt 300 ]; do
        segments=$((segments + 1))
        # shellcheck disable=SC2046
        set -- $(bytes "$at" 9)
        [ $# -eq 9 ] && [ "$1" -eq 255 ] || return 0
        case $2 in
        255) at=$((at + 1)) ;;
        1 | 20[89] | 21[0-6]) at=$((at + 2)) ;;
        19[2-57-9] | 20[1-35-7])
            number "$8" "$9"
            width=$number
            number "$6" "$7"
            fits "$width" "$number"
            return 0
            ;;
        217 | 218) return 0 ;;
        *)
            number "$3" "$4"
            at=$((at + 2 + number))
            ;;
        esac
    done
}

# Walks the directories, one per page. If one is beyond the end of the file, the file is corrupt: tesseract would silently skip that page.
measure_tiff() {
    [ "$(head -c 1 "$document")" = M ] || order=little
    # shellcheck disable=SC2046
    set -- $(bytes 4 4)
    number "$@"
    while [ "$number" -gt 0 ]; do
        at=$number
        # shellcheck disable=SC2046
        set -- $(bytes "$at" 2)
        number "$@"
        entries=$number
        [ "$entries" -gt 0 ] && [ "$entries" -le 500 ] || fail CORRUPT_DATA "the TIFF image is damaged"
        # shellcheck disable=SC2046
        set -- $(bytes $((at + 2)) $((entries * 12 + 4)))
        [ $# -eq $((entries * 12 + 4)) ] || fail CORRUPT_DATA "the TIFF image is truncated"
        width=0 height=0
        while [ $# -gt 4 ]; do
            number "$1" "$2"
            tag=$number
            number "$3" "$4"
            # A short number has two bytes, others four.
            if [ "$number" -eq 3 ]; then number "$9" "${10}"; else number "$9" "${10}" "${11}" "${12}"; fi
            case $tag in
            256) width=$number ;;
            257) height=$number ;;
            esac
            shift 12
        done
        fits "$width" "$height"
        number "$@"
    done
}
