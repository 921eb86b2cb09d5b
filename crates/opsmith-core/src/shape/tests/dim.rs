use proptest::prelude::*;
use serde_json::json;

use super::{dim, shape};
use crate::shape::{Dim, Shape};

fn known(size: u64) -> Dim {
    Dim::Known(size)
}

#[test]
fn expressions_have_one_form() {
    for (text, form) in [
        ("n + 0", "n"),
        ("n * 1", "n"),
        ("0 * n", "0"),
        ("1 + n + 2", "n + 3"),
        ("b + a", "a + b"),
        ("b * a", "a * b"),
        ("(n + m) - m", "n"),
        ("n + n", "2 * n"),
        ("2 * (n + 1) - n", "n + 2"),
        ("(n + 1) * (m + 2)", "m + m * n + 2 * n + 2"),
        ("n - m", "n - m"),
        ("0 - (m - n)", "n - m"),
        ("n // 1", "n"),
        ("n // n", "1"),
        ("(n * m) // n", "m"),
        ("(4 * n + 2 * m) // 2", "m + 2 * n"),
        ("(2 * n + 1) // 2", "n"),
        ("(n + 3) // 2", "(n + 3) // 2"),
        ("2 * (n // 2)", "2 * (n // 2)"),
        ("n // 2 // 3", "(n // 2) // 3"),
        ("n * (m // 2)", "n * (m // 2)"),
        ("max(n, m)", "max(m, n)"),
        ("max(n, n + 1)", "n + 1"),
        ("min(n, n + 1)", "n"),
        ("min(a, b, min(c, a))", "min(a, b, c)"),
        ("max(n, 0)", "n"),
        ("max(3, n, 5)", "max(5, n)"),
        ("min(n, 0)", "0"),
        ("min(n // 2, n + m)", "min(m + n, n // 2)"),
        ("min(0 - n // m, n)", "-(n // m)"),
        ("min(2 * (0 - n // m), n)", "-2 * (n // m)"),
        ("7 // 2", "3"),
    ] {
        assert_eq!(dim(text).to_string(), form, "{text}");
    }
}

#[test]
fn what_may_be_negative_is_not_taken_for_positive() {
    assert_eq!(dim("max(n - 5, 0)").to_string(), "max(0, n - 5)");
    assert_eq!(dim("max((n - 5) // 2, 0)").to_string(), "max(0, (n - 5) // 2)");
}

#[test]
fn dims_and_expressions_that_are_no_sizes_are_refused() {
    for (text, message) in [
        ("2 - 3", "the size of a dim cannot be negative, got -1"),
        ("n // 0", "the divisor must be positive, got 0"),
        ("9223372036854775807 + 1", "the size of a dim overflows 64 bits"),
        ("4611686018427387904 * (n + n)", "the size of a dim overflows 64 bits"),
        ("n +", "expected a number or a name, found the end"),
        ("n m", "expected the end, found `m`"),
        ("", "expected a number or a name, found the end"),
    ] {
        let error = Dim::parse(text).unwrap_err();
        assert!(error.message().starts_with(message), "{text}: {error}");
    }
    let many = (0..40).map(|i| format!("a{i}")).collect::<Vec<_>>().join(" + ");
    let product = dim(&many).times(&dim(&many.replace('a', "b")));
    assert_eq!(product.unwrap_err().message(), "a dim has more than 1024 terms");
    assert!(known(u64::MAX).plus(&known(1)).is_err());
}

#[test]
fn arithmetic_with_unknown_dims_knows_what_it_can() {
    let unknown = Dim::Unknown;
    assert_eq!(unknown.plus(&known(0)).unwrap(), unknown);
    assert_eq!(known(0).plus(&known(2)).unwrap(), known(2));
    assert_eq!(unknown.times(&known(0)).unwrap(), known(0));
    assert_eq!(unknown.times(&known(1)).unwrap(), unknown);
    assert_eq!(unknown.times(&known(2)).unwrap(), unknown);
    assert_eq!(unknown.minimum(&known(0)).unwrap(), known(0));
    assert_eq!(unknown.maximum(&known(0)).unwrap(), unknown);
    assert_eq!(unknown.maximum(&known(3)).unwrap(), unknown);
    assert_eq!(unknown.minus(&known(2)).unwrap(), unknown);
    assert_eq!(unknown.floor_div(&known(2)).unwrap(), unknown);
}

#[test]
fn json_is_what_is_documented() {
    for (text, value) in [
        ("3", json!(3)),
        ("?", json!(null)),
        ("s0", json!("s0")),
        ("s0 + 1", json!(["+", "s0", 1])),
        ("2 * s0 * s1", json!(["*", 2, "s0", "s1"])),
        ("s0 - 2 * s1 - 1", json!(["-", "s0", ["+", ["*", 2, "s1"], 1]])),
        ("(s0 + 1) // 2", json!(["//", ["+", "s0", 1], 2])),
        ("max(s0, s1, 2)", json!(["max", 2, "s0", "s1"])),
        ("min(s0, s1)", json!(["min", "s0", "s1"])),
    ] {
        assert_eq!(dim(text).to_json(), value);
        assert_eq!(Dim::from_json(&value).unwrap(), dim(text));
    }
    assert_eq!(shape("[s0,?]").to_json(), json!(["s0", null]));
    assert_eq!(Shape::from_json(&json!(null)).unwrap(), Shape::unknown());
    for bad in [json!(1.5), json!(["+"]), json!(["^", 1, 2]), json!([1, 2]), json!({}), json!(-1)] {
        assert!(Dim::from_json(&bad).is_err(), "{bad}");
    }
}

#[test]
fn shapes_are_read_and_shown() {
    for text in ["?", "[]", "[?]", "[2,3]", "[?,3]", "[n,n + 1,2 * m]"] {
        assert_eq!(shape(text).to_string(), text);
    }
    assert_eq!(shape(" [ 2 , ? ] "), Shape::from(vec![known(2), Dim::Unknown]));
    for text in ["", "[", "[2", "[2,]", "2", "[2] x", "??", "[,2]"] {
        assert!(Shape::parse(text).is_err(), "{text}");
    }
    assert_eq!(Shape::parse("[2;3]").unwrap_err().message(), "expected `,`, found `;`\n  [2;3]\n    ^");
}

#[test]
fn shapes_become_attributes_and_back() {
    assert_eq!(shape("[2,?,n]").to_partial(), Some(vec![Some(2), None, None]));
    assert_eq!(Shape::from(&Some(vec![Some(2), None])), shape("[2,?]"));
    assert_eq!(Shape::from(&None), Shape::unknown());
    assert_eq!(shape("[2,3]").to_known(), Some(vec![2, 3]));
    assert_eq!(shape("[2,?]").to_known(), None);
    assert_eq!(shape("[2,n,3]").num_elements().unwrap(), dim("6 * n"));
    assert_eq!(shape("[?,0]").num_elements().unwrap(), known(0));
    assert!(shape("[4294967296,4294967296]").num_elements().is_err());
}

/// Arithmetic over `a`, `b` and `c`, as text.
fn arithmetic() -> impl Strategy<Value = String> {
    let leaf = prop_oneof!["[abc]", (0u8..4).prop_map(|value| value.to_string())];
    leaf.prop_recursive(4, 24, 2, |inner| {
        let operator = prop_oneof![Just("+"), Just("-"), Just("*"), Just("//")];
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), "min|max", inner).prop_map(|(a, op, b)| format!("{op}({a}, {b})")),
        ]
    })
}

/// What the text is in plain integers, as [`arithmetic`] writes it; `None` on division by what is not positive.
fn value(text: &str, symbols: [u64; 3]) -> Option<i64> {
    let Some(open) = text.find('(') else {
        return Some(match text.as_bytes()[0] {
            letter @ b'a'..=b'c' => symbols[usize::from(letter - b'a')] as i64,
            _ => text.parse().unwrap(),
        });
    };
    let inside = &text[open + 1..text.len() - 1];
    let mut depth = 0;
    let split = inside.char_indices().find(|&(_, c)| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0 && (c == ' ' || c == ',')
    });
    let (left, right) = inside.split_at(split.unwrap().0);
    let (operator, right) = match (&text[..open], right.trim_start().split_once(' ')) {
        ("", parts) => parts.unwrap(),
        (call, _) => (call, right[1..].trim_start()),
    };
    let (left, right) = (value(left, symbols)?, value(right, symbols)?);
    match operator {
        "+" => Some(left + right),
        "-" => Some(left - right),
        "*" => Some(left * right),
        "//" => (right > 0).then(|| left.div_euclid(right)),
        "min" => Some(left.min(right)),
        _ => Some(left.max(right)),
    }
}

proptest! {
    #[test]
    fn what_is_shown_is_read_back(text in arithmetic()) {
        if let Ok(dim) = Dim::parse(&text) {
            prop_assert_eq!(Dim::parse(&dim.to_string()), Ok(dim.clone()));
            prop_assert_eq!(Dim::from_json(&dim.to_json()), Ok(dim));
        }
    }

    #[test]
    fn symbolic_arithmetic_agrees_with_plain_integers(text in arithmetic(), symbols in [0u64..6, 0u64..6, 0u64..6]) {
        let Some(expected) = value(&text, symbols) else { return Ok(()) };
        let Ok(dim) = Dim::parse(&text) else {
            // Negative whatever the symbols, or a divisor that is never positive.
            prop_assert!(expected < 0 || text.contains("//"));
            return Ok(());
        };
        let size = |name: &str| Some(symbols[usize::from(name.as_bytes()[0] - b'a')]);
        match dim.substitute(&size) {
            Ok(dim) => prop_assert_eq!(dim, known(u64::try_from(expected).unwrap())),
            Err(_) => prop_assert!(expected < 0),
        }
    }

    #[test]
    fn sums_and_products_do_not_depend_on_the_order(a in arithmetic(), b in arithmetic()) {
        let (Ok(a), Ok(b)) = (Dim::parse(&a), Dim::parse(&b)) else { return Ok(()) };
        prop_assert_eq!(a.plus(&b), b.plus(&a));
        prop_assert_eq!(a.times(&b), b.times(&a));
        prop_assert_eq!(a.maximum(&b), b.maximum(&a));
        if let Ok(sum) = a.plus(&b) {
            prop_assert_eq!(sum.minus(&b), Ok(a));
        }
    }

    #[test]
    fn any_text_is_a_shape_or_refused(text in "[\\[\\],?n0-9+*/() -]{0,24}") {
        if let Ok(shape) = Shape::parse(&text) {
            prop_assert_eq!(Shape::parse(&shape.to_string()), Ok(shape));
        }
    }
}
