//! What can go wrong, as a code that every framework can map to its own class and a message for a person.

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

/// A failure: its [`Code`], the op, the argument, and a text that says what was expected and what came.
///
/// Each layer sets what it knows and nobody above it changes that: a kernel says what is wrong, and need not name its op, which
/// whoever runs the kernel sets. Nothing is ever read from the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Fields>);

/// Behind a box, so that a `Result<()>` is a pointer.
#[derive(Clone, PartialEq, Eq)]
struct Fields {
    code: Code,
    /// Where the op was: a file, a node. With the colons that follow.
    context: String,
    op: Option<Box<str>>,
    /// The op that called that one, where the context has it, and the context without it.
    caller: Option<(Box<str>, String)>,
    argument: Option<Box<str>>,
    text: Cow<'static, str>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:ident;)*) => {
        impl Error {
            $($(#[$doc])* pub fn $name(text: impl Into<Cow<'static, str>>) -> Error {
                Error::new(Code::$code, text)
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
    /// An error of any code. The text names the argument, and not the op.
    pub fn new(code: Code, text: impl Into<Cow<'static, str>>) -> Error {
        let context = String::new();
        Error(Box::new(Fields { code, context, op: None, caller: None, argument: None, text: text.into() }))
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
        self.0.code
    }

    /// The op that failed, where that is known.
    pub fn op(&self) -> Option<&str> {
        self.0.op.as_deref()
    }

    /// The input, output or attribute that is to blame, where that is known.
    pub fn argument(&self) -> Option<&str> {
        self.0.argument.as_deref()
    }

    /// What is wrong, without the op: ``input `x` is int32, but must be float32``.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The op that was called, and what is wrong: in that op, or in one that it called, which the text then begins with.
    pub fn as_called(&self) -> (Option<&str>, Cow<'_, str>) {
        let Fields { context, op, caller, text, .. } = &*self.0;
        match (op, caller) {
            (Some(op), Some((caller, rest))) => (Some(caller), Cow::Owned(format!("{rest}{op}: {text}"))),
            (op, _) if context.is_empty() => (op.as_deref(), Cow::Borrowed(text)),
            (op, _) => (op.as_deref(), Cow::Owned(format!("{context}{text}"))),
        }
    }

    /// The whole message without the code: the op, and then the text.
    pub fn message(&self) -> String {
        self.message_with(|op| op.to_owned())
    }

    /// The message, where ops have other names: `name` gives the one to print.
    pub fn message_with(&self, name: impl FnOnce(&str) -> String) -> String {
        let Fields { context, op, text, .. } = &*self.0;
        match op {
            Some(op) => format!("{context}{}: {text}", name(op)),
            None => format!("{context}{text}"),
        }
    }

    /// The same error of this op. An error of another op, which this one has called, stays that one's, within this one.
    #[must_use]
    pub fn with_op(mut self, op: &str) -> Error {
        match self.op() {
            Some(own) if own == op || self.0.caller.as_ref().is_some_and(|(caller, _)| &**caller == op) => {
                self
            }
            Some(_) => {
                let rest = self.0.context.clone();
                let mut error = self.within(op);
                error.0.caller = Some((op.into(), rest));
                error
            }
            None => {
                self.0.op = Some(op.into());
                self
            }
        }
    }

    /// The same error with another text, made of the one it has.
    #[must_use]
    pub fn with_text(mut self, text: impl FnOnce(&str) -> String) -> Error {
        self.0.text = text(&self.0.text).into();
        self
    }

    /// The same error about this argument, unless it is about another one already; ``input `x`: `` then comes before the text.
    #[must_use]
    pub fn with_argument(self, kind: &str, name: &str) -> Error {
        match self.0.argument {
            Some(_) => self,
            None => self.with_text(|text| format!("{kind} `{name}`: {text}")).naming(name),
        }
    }

    /// The same error about this argument, which the text names, unless it is about another one already.
    #[must_use]
    pub fn naming(mut self, argument: &str) -> Error {
        self.0.argument.get_or_insert_with(|| argument.into());
        self
    }

    /// The same error with `context` and a colon before all that is known so far: the file or the node, say.
    #[must_use]
    pub fn within(mut self, context: impl fmt::Display) -> Error {
        if self.0.op.is_none() {
            return self.with_text(|text| format!("{context}: {text}"));
        }
        self.0.context = format!("{context}: {}", self.0.context);
        if let Some((_, rest)) = &mut self.0.caller {
            *rest = format!("{context}: {rest}");
        }
        self
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
        write!(f, "{}: {}", self.0.code.name(), self.message())
    }
}

/// As it is displayed: a test or a `main` that returns it shows it this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// Returns an error from the surrounding function: `bail!(InvalidArgument, "n is {n}")`; with the argument that is to blame,
/// ``bail!(InvalidArgument for "n", "attribute `n` is {n}")``.
#[macro_export]
macro_rules! bail {
    ($code:ident for $argument:expr, $($message:tt)+) => {
        return ::core::result::Result::Err(
            $crate::Error::formatted($crate::Code::$code, ::core::format_args!($($message)+)).naming($argument),
        )
    };
    ($code:ident, $($message:tt)+) => {
        return ::core::result::Result::Err($crate::Error::formatted(
            $crate::Code::$code,
            ::core::format_args!($($message)+),
        ))
    };
}

/// Returns an error unless the condition holds: `ensure!(n > 0, InvalidArgument, "n must be positive, got {n}")`, or with
/// the argument that is to blame, as [`bail!`] has it.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $code:ident for $argument:expr, $($message:tt)+) => {
        if !$condition {
            $crate::bail!($code for $argument, $($message)+);
        }
    };
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
        ensure!(n > 0, InvalidArgument for "n", "n must be positive, got {n}");
        Ok(n)
    }

    #[test]
    fn ensure_returns_the_error_with_its_code() {
        assert_eq!(positive(1), Ok(1));
        let error = positive(-1).unwrap_err();
        assert_eq!((error.code(), error.argument()), (Code::InvalidArgument, Some("n")));
        assert_eq!(
            error.with_op("ZeroOut").to_string(),
            "InvalidArgument: ZeroOut: n must be positive, got -1"
        );
    }

    #[test]
    fn each_layer_sets_what_is_not_set() {
        let error = Error::invalid_argument("Maximum is 3, got 4").with_argument("attribute", "most");
        assert_eq!((error.op(), error.argument()), (None, Some("most")));
        let error = error.with_argument("input", "x").naming("y").with_op("Max").with_op("Max");
        assert_eq!((error.op(), error.argument()), (Some("Max"), Some("most")));
        assert_eq!(error.text(), "attribute `most`: Maximum is 3, got 4");
        let error = error.within("node `m`").within("a.graph");
        assert_eq!(error.message(), "a.graph: node `m`: Max: attribute `most`: Maximum is 3, got 4");
        assert_eq!(
            error.message_with(str::to_lowercase),
            "a.graph: node `m`: max: attribute `most`: Maximum is 3, got 4"
        );
        let error = Error::internal("Maximum").with_op("Max");
        assert_eq!(error.message(), "Max: Maximum");
        let error = error.with_op("Best");
        assert_eq!((error.op(), &*error.message()), (Some("Max"), "Best: Max: Maximum"));
        assert_eq!(error.with_op("Best").message(), "Best: Max: Maximum", "each op is said once");
    }

    #[test]
    fn a_result_is_a_pointer() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn every_code_survives_its_number() {
        for code in Code::ALL {
            assert_eq!(Code::from_i32(code as i32), code);
        }
        assert_eq!(Code::from_i32(99), Code::Unknown);
    }

    #[test]
    fn whoever_called_an_op_is_told_of_that_op() {
        let error = || Error::invalid_argument("no");
        let told = |error: &Error| {
            let (op, text) = error.as_called();
            (op.map(str::to_owned), text.into_owned())
        };
        assert_eq!(told(&error()), (None, "no".to_owned()));
        assert_eq!(told(&error().with_op("Slice")), (Some("Slice".to_owned()), "no".to_owned()));
        let within = error().with_op("Slice").with_op("Outer");
        assert_eq!(told(&within), (Some("Outer".to_owned()), "Slice: no".to_owned()));
        let deep = within.with_op("Outermost");
        assert_eq!(told(&deep), (Some("Outermost".to_owned()), "Outer: Slice: no".to_owned()));
        let of_file = deep.within("file");
        assert_eq!(told(&of_file), (Some("Outermost".to_owned()), "file: Outer: Slice: no".to_owned()));
        assert_eq!(of_file.message(), "file: Outermost: Outer: Slice: no");
    }
}
