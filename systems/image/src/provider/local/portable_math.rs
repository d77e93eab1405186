//! Sine, angle and roots with the same result on every machine.
//!
//! The functions of `std` differ between platforms in the last bit. These use only sums, products, quotients and square
//! roots, which IEEE 754 defines exactly and Rust neither reorders nor fuses. Their error is below 0.00001, a small
//! part of a pixel.

/// Returns the sine of an angle in turns; 1 is a full turn.
pub(super) fn sin(turns: f64) -> f64 {
    // Fold into a quarter turn on either side of 0, where a short polynomial suffices.
    let around = turns - (turns + 0.5).floor();
    let folded = if around > 0.25 {
        0.5 - around
    } else if around < -0.25 {
        -0.5 - around
    } else {
        around
    };
    let x = folded * std::f64::consts::TAU;
    let y = x * x;
    x * (1.0 - y / 6.0 * (1.0 - y / 20.0 * (1.0 - y / 42.0 * (1.0 - y / 72.0 * (1.0 - y / 110.0)))))
}

pub(super) fn cos(turns: f64) -> f64 {
    sin(turns + 0.25)
}

/// Returns the angle of a point seen from the origin, in turns from 0 to 1; 0 at the origin itself.
pub(super) fn angle(x: f64, y: f64) -> f64 {
    let (across, along) = (x.abs(), y.abs());
    let (short, long) = if across < along { (across, along) } else { (along, across) };
    if long == 0.0 {
        return 0.0;
    }
    let slope = short / long;
    // Halve the angle with the tangent identity, where the series converges quickly.
    let half = slope / (1.0 + (1.0 + slope * slope).sqrt());
    let s = half * half;
    let series =
        half * (1.0 - s * (1.0 / 3.0 - s * (1.0 / 5.0 - s * (1.0 / 7.0 - s * (1.0 / 9.0 - s * (1.0 / 11.0))))));
    let eighth = 2.0 * series / std::f64::consts::TAU;
    let quarter = if across < along { 0.25 - eighth } else { eighth };
    let half_turn = if x < 0.0 { 0.5 - quarter } else { quarter };
    if y < 0.0 { 1.0 - half_turn } else { half_turn }
}

/// Returns the cube root of a non-negative number, by Newton's method from above.
pub(super) fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = if x < 1.0 { 1.0 } else { x };
    for _ in 0..64 {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

/// Rises from 0 to 1 with a soft start and end, as `x` goes from `low` to `high`.
pub(super) fn smoothstep(low: f64, high: f64, x: f64) -> f64 {
    let t = ((x - low) / (high - low)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// Interpolates linearly between `from` and `to`.
pub(super) fn lerp(from: f64, to: f64, fraction: f64) -> f64 {
    from + (to - from) * fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_functions_match_std() {
        for step in -4000..4000 {
            let turns = f64::from(step) / 1000.0;
            let radians = turns * std::f64::consts::TAU;
            assert!((sin(turns) - radians.sin()).abs() < 1e-5, "sin {turns}");
            assert!((cos(turns) - radians.cos()).abs() < 1e-5, "cos {turns}");
            let (x, y) = (radians.cos() * 3.0, radians.sin() * 3.0);
            let off = angle(x, y) - turns.rem_euclid(1.0);
            assert!((off - off.round()).abs() < 1e-5, "angle {turns}: {}", angle(x, y));
        }
        for step in 1..1000 {
            let x = f64::from(step) / 100.0;
            assert!((cube_root(x) - x.cbrt()).abs() < 1e-9, "{x}");
        }
        assert_eq!((cube_root(0.0), angle(0.0, 0.0)), (0.0, 0.0));
    }
}
