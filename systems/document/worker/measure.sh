# Part of extract.sh: how large an image is, by its head, before a program takes memory for it.
# shellcheck shell=sh disable=SC2154 # `document`, `pages`, `pixels` and `fail` are those of extract.sh.
#
# A head that cannot be followed is left to tesseract, whose memory and time are bounded.

bytes() { # FROM COUNT, as numbers
    od -An -v -tu1 -j "$1" -N "$2" "$document" 2>/dev/null
}

number() { # BYTE..., in the order of the file
    number=0 weight=1
    for byte; do
        if [ "$order" = big ]; then number=$((number * 256 + byte)); else number=$((number + byte * weight)); fi
        weight=$((weight * 256))
    done
}

fits() { # WIDTH HEIGHT of one more image
    images=$((images + 1))
    [ "$images" -le "$pages" ] || fail LIMIT_EXCEEDED "more scanned pages than the $pages that are read"
    # Each alone first: their product may be more than the shell can count.
    [ "$1" -le "$pixels" ] && [ "$2" -le "$pixels" ] && [ $(($1 * $2)) -le "$pixels" ] ||
        fail LIMIT_EXCEEDED "an image of more than $pixels pixels"
}

measure() { # KIND. How many there are goes to `images`.
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

# From segment to segment, until one that begins a frame tells its size. A photograph has some ten, with the parts of its profiles.
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

# From directory to directory, one for each page. One that lies beyond the end of the file is not missed by tesseract, which would read the
# pages before it and be content.
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
            # A short number stands in two bytes, others in four.
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
