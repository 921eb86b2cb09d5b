//! Single values of JSON, as their dtypes have them.

use std::num::ParseFloatError;

use half::{bf16, f16};

use crate::halves::nearest;

/// A number, truth value or text that JSON has.
pub(crate) trait Scalar: Sized {
    /// Reads it; nothing where the token is none that is in range.
    fn read(token: &str) -> Option<Self>;
}

macro_rules! scalars {
    ($($ty:ty: $token:ident => $value:expr;)*) => {
        $(impl Scalar for $ty {
            fn read($token: &str) -> Option<Self> {
                $value
            }
        })*
    };
}

scalars! {
    f32: token => float(token, str::parse, f32::is_finite);
    f64: token => float(token, str::parse, f64::is_finite);
    f16: token => float(token, nearest, f16::is_finite);
    bf16: token => float(token, nearest, bf16::is_finite);
    i8: token => token.parse().ok();
    i16: token => token.parse().ok();
    i32: token => token.parse().ok();
    i64: token => token.parse().ok();
    u8: token => token.parse().ok();
    u16: token => token.parse().ok();
    u32: token => token.parse().ok();
    u64: token => token.parse().ok();
    bool: token => token.parse().ok();
    String: token => token.starts_with('"').then(|| serde_json::from_str(token).ok()).flatten();
}

/// A float; one that is too large for its dtype is none.
fn float<T: Copy>(
    token: &str,
    parse: fn(&str) -> Result<T, ParseFloatError>,
    is_finite: fn(T) -> bool,
) -> Option<T> {
    match token {
        "\"nan\"" | "\"inf\"" | "\"-inf\"" => parse(&token[1..token.len() - 1]).ok(),
        _ => parse(token).ok().filter(|value| is_finite(*value)),
    }
}

/// Whether a token is no number, or one as JSON writes them: Rust takes `+1`, `01`, `1.` and `.5` too.
pub(crate) fn is_of_json(token: &str) -> bool {
    let token = token.strip_prefix('-').unwrap_or(token);
    let digits = token.bytes().take_while(u8::is_ascii_digit).count();
    let is_ended = |rest: &str| rest.starts_with(|sign: char| sign.is_ascii_digit());
    match digits {
        0 => token.starts_with(|sign: char| sign == '"' || sign.is_ascii_alphabetic()),
        1 => token[1..].strip_prefix('.').is_none_or(is_ended),
        _ => !token.starts_with('0') && token[digits..].strip_prefix('.').is_none_or(is_ended),
    }
}
