//! Quantities of Kubernetes, such as `250m` processors or `1.5Gi` of memory, as numbers that can be added.

/// Digits after the point that are read; more say nothing that Kubernetes keeps (it rounds up to a billionth).
const FRACTION_MAX_DIGITS: usize = 12;

/// A quantity in thousandths of its unit, rounded up; `None` for a text that is none, a negative one and one above 2^64 - 1.
///
/// Source of the suffixes: `k8s.io/apimachinery/pkg/api/resource`, documentation of the type `Quantity`.
pub fn thousandths(text: &str) -> Option<u64> {
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    let end = text.find(|letter| !is_number(letter)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (factor, power) = unit(suffix)?;

    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = &fraction[..fraction.len().min(FRACTION_MAX_DIGITS)];
    let digits: u128 = [whole, fraction].concat().parse().ok()?;
    let power = power.checked_add(3)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let scale = 10_u128.checked_pow(power.unsigned_abs())?;
    let exact = digits.checked_mul(factor)?;
    let scaled = if power < 0 { exact.div_ceil(scale) } else { exact.checked_mul(scale)? };
    u64::try_from(scaled).ok()
}

/// A suffix as a factor and a power of ten.
fn unit(suffix: &str) -> Option<(u128, i32)> {
    Some(match suffix {
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "" => (1, 0),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        exponent => (1, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::thousandths;

    #[test]
    fn quantities_are_read_with_each_suffix_and_rounded_up() {
        let right = [
            ("0", 0),
            ("1", 1_000),
            ("250m", 250),
            ("1.5", 1_500),
            (".5", 500),
            ("1u", 1),
            ("1001u", 2),
            ("3n", 1),
            ("2k", 2_000_000),
            ("1.5Gi", 1_610_612_736_000),
            ("4Ti", 4_398_046_511_104_000),
            ("1e3", 1_000_000),
            ("2E-1", 200),
            ("0.0000009", 1),
        ];
        for (text, wanted) in right {
            assert_eq!(thousandths(text), Some(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_or_too_much_is_none() {
        for text in ["", "m", "-1", "1.2.3", "1 Gi", "1gi", "1e", "99E", "1e99999999999", "1e400"] {
            assert_eq!(thousandths(text), None, "{text}");
        }
    }
}
