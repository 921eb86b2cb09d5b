//! What can go wrong, as a code that every host can map to its own class and a message for a person.

use std::borrow::Cow;
use std::fmt;

/// The result of anything in Opsmith that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of a failure. The numbers are those of `absl::StatusCode`, which TensorFlow and XLA share,
/// and they cross the C ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum Code {
    /// The operation was cancelled, typically by its caller.
    Cancelled = 1,
    /// A failure that fits no other code.
    Unknown = 2,
    /// The caller passed something that is wrong whatever the state of the system.
    InvalidArgument = 3,
    /// A deadline passed first.
    DeadlineExceeded = 4,
    /// A named thing does not exist.
    NotFound = 5,
    /// A named thing exists already, and differs.
    AlreadyExists = 6,
    /// The caller may not do this.
    PermissionDenied = 7,
    /// Memory or another resource ran out.
    ResourceExhausted = 8,
    /// The system is not in the state that the operation needs.
    FailedPrecondition = 9,
    /// The operation was aborted, typically by a concurrent one.
    Aborted = 10,
    /// An index is outside the valid range.
    OutOfRange = 11,
    /// Not implemented, or not supported here.
    Unimplemented = 12,
    /// A broken invariant: a bug in a kernel or in Opsmith.
    Internal = 13,
    /// A service is not available just now.
    Unavailable = 14,
    /// Data was lost or is corrupt.
    DataLoss = 15,
}

impl Code {
    /// Every code, in numeric order.
    pub const ALL: [Code; 15] = [
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
    ];

    /// The code with this number; `Unknown` for a number that is not one.
    pub fn from_i32(number: i32) -> Code {
        Code::ALL.into_iter().find(|code| *code as i32 == number).unwrap_or(Code::Unknown)
    }

    /// The code's name, as in the variant.
    pub fn name(self) -> &'static str {
        match self {
            Code::Cancelled => "Cancelled",
            Code::Unknown => "Unknown",
            Code::InvalidArgument => "InvalidArgument",
            Code::DeadlineExceeded => "DeadlineExceeded",
            Code::NotFound => "NotFound",
            Code::AlreadyExists => "AlreadyExists",
            Code::PermissionDenied => "PermissionDenied",
            Code::ResourceExhausted => "ResourceExhausted",
            Code::FailedPrecondition => "FailedPrecondition",
            Code::Aborted => "Aborted",
            Code::OutOfRange => "OutOfRange",
            Code::Unimplemented => "Unimplemented",
            Code::Internal => "Internal",
            Code::Unavailable => "Unavailable",
            Code::DataLoss => "DataLoss",
        }
    }
}

/// A failure: a [`Code`] and a message that names the op, the argument, what was expected and what came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: Cow<'static, str>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:ident;)*) => {
        impl Error {
            $($(#[$doc])* pub fn $name(message: impl Into<Cow<'static, str>>) -> Error {
                Error::new(Code::$code, message)
            })*
        }
    };
}

constructors! {
    /// An [`Code::InvalidArgument`] error.
    invalid_argument => InvalidArgument;
    /// A [`Code::NotFound`] error.
    not_found => NotFound;
    /// An [`Code::AlreadyExists`] error.
    already_exists => AlreadyExists;
    /// A [`Code::ResourceExhausted`] error.
    resource_exhausted => ResourceExhausted;
    /// A [`Code::FailedPrecondition`] error.
    failed_precondition => FailedPrecondition;
    /// An [`Code::OutOfRange`] error.
    out_of_range => OutOfRange;
    /// An [`Code::Unimplemented`] error.
    unimplemented => Unimplemented;
    /// An [`Code::Internal`] error.
    internal => Internal;
}

impl Error {
    /// An error of any code.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Error {
        Error { code, message: message.into() }
    }

    /// What `bail!` makes: out of the way of what succeeds, and once for all that fail.
    #[doc(hidden)]
    #[cold]
    #[inline(never)]
    pub fn formatted(code: Code, message: fmt::Arguments<'_>) -> Error {
        Error::new(code, message.as_str().map_or_else(|| message.to_string().into(), Cow::Borrowed))
    }

    /// The kind of failure.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The message, without the code.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error with `context` and a colon before its message: the op's name, say.
    #[must_use]
    pub fn within(self, context: impl fmt::Display) -> Error {
        let context: &dyn fmt::Display = &context;
        Error { code: self.code, message: format!("{context}: {}", self.message).into() }
    }

    /// The error that stands for a panic: its payload, as `catch_unwind` gave it, and its place where known.
    pub fn from_panic(payload: &(dyn std::any::Any + Send), place: Option<&str>) -> Error {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a value that is not text");
        match place {
            Some(place) => Error::internal(format!("panicked at {place}: {text}")),
            None => Error::internal(format!("panicked: {text}")),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for Error {}

/// Returns an error from the surrounding function: `bail!(InvalidArgument, "n is {n}")`.
#[macro_export]
macro_rules! bail {
    ($code:ident, $($message:tt)+) => {
        return ::core::result::Result::Err($crate::Error::formatted(
            $crate::Code::$code,
            ::core::format_args!($($message)+),
        ))
    };
}

/// Returns an error unless the condition holds: `ensure!(n > 0, InvalidArgument, "n must be positive, got {n}")`.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $code:ident, $($message:tt)+) => {
        if !$condition {
            $crate::bail!($code, $($message)+);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positive(n: i64) -> Result<i64> {
        ensure!(n > 0, InvalidArgument, "n must be positive, got {n}");
        Ok(n)
    }

    #[test]
    fn ensure_returns_the_error_with_its_code() {
        assert_eq!(positive(1), Ok(1));
        let error = positive(-1).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(
            error.within("ZeroOut").to_string(),
            "InvalidArgument: ZeroOut: n must be positive, got -1"
        );
    }

    #[test]
    fn every_code_survives_its_number() {
        for code in Code::ALL {
            assert_eq!(Code::from_i32(code as i32), code);
        }
        assert_eq!(Code::from_i32(99), Code::Unknown);
    }
}
