//! CUDA C++ sources, and what is made of them.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use opsmith_core::fork::OnceLock;

use crate::digest::Digest;

/// A header's name, and its text.
pub type Header = (Cow<'static, str>, Cow<'static, str>);

/// A header without its comments, which a library need not carry; lines stay where they are.
macro_rules! header {
    ($name:literal) => {{
        const TEXT: &str = include_str!($name);
        const STRIPPED: [u8; stripped(TEXT.as_bytes(), &mut [])] = {
            let mut bytes = [0; stripped(TEXT.as_bytes(), &mut [])];
            stripped(TEXT.as_bytes(), &mut bytes);
            bytes
        };
        match std::str::from_utf8(&STRIPPED) {
            Ok(text) => (Cow::Borrowed($name), Cow::Borrowed(text)),
            Err(_) => panic!("comments end with a line"),
        }
    }};
}

/// The headers that sources may include, those that others include first.
pub static HEADERS: [Header; 3] =
    [header!("opsmith.cuh"), header!("opsmith_gemm.cuh"), header!("opsmith_fold.cuh")];

/// What a source has that includes none of the others, which then are in no library without such a source; or one of them.
static BASE: [Header; 1] = [header!("opsmith.cuh")];
static WITH_PRODUCTS: [Header; 2] = [header!("opsmith.cuh"), header!("opsmith_gemm.cuh")];
static WITH_FOLDS: [Header; 2] = [header!("opsmith.cuh"), header!("opsmith_fold.cuh")];

/// The headers of a text.
const fn headers_of(text: &[u8]) -> &'static [Header] {
    match (has(text, b"\"opsmith_gemm.cuh\""), has(text, b"\"opsmith_fold.cuh\"")) {
        (false, false) => &BASE,
        (true, false) => &WITH_PRODUCTS,
        (false, true) => &WITH_FOLDS,
        (true, true) => &HEADERS,
    }
}

/// Writes a text without its line comments, as far as there is room; gives the whole length.
const fn stripped(text: &[u8], to: &mut [u8]) -> usize {
    let (mut at, mut len) = (0, 0);
    while at < text.len() {
        if text[at] == b'/' && at + 1 < text.len() && text[at + 1] == b'/' {
            while at < text.len() && text[at] != b'\n' {
                at += 1;
            }
            continue;
        }
        if len < to.len() {
            to[len] = text[at];
        }
        len += 1;
        at += 1;
    }
    len
}

/// Whether a text has a name.
const fn has(text: &[u8], name: &[u8]) -> bool {
    let mut at = 0;
    while at + name.len() <= text.len() {
        let mut same = 0;
        while same < name.len() && text[at + same] == name[same] {
            same += 1;
        }
        if same == name.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// A CUDA C++ source, and where its author wrote it.
///
/// ```
/// use opsmith_cuda::Source;
///
/// static DOUBLED: Source = Source::new("doubled.cu", "__global__ void doubled(float *x) { *x *= 2; }").beside(file!());
/// assert!(DOUBLED.file().ends_with("doubled.cu"));
/// ```
pub struct Source {
    name: Cow<'static, str>,
    text: Cow<'static, str>,
    first_line: u32,
    beside: &'static str,
    headers: Cow<'static, [Header]>,
    key: OnceLock<u128>,
}

impl Source {
    /// A source whose text is known when the library is compiled.
    pub const fn new(name: &'static str, text: &'static str) -> Source {
        Source {
            name: Cow::Borrowed(name),
            text: Cow::Borrowed(text),
            first_line: 1,
            beside: "",
            headers: Cow::Borrowed(headers_of(text.as_bytes())),
            key: OnceLock::new(),
        }
    }

    /// A source that is made at run time.
    ///
    /// It may include `opsmith.cuh` and no other header.
    pub fn generated(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source { name: Cow::Owned(name.into()), text: Cow::Owned(text.into()), ..Source::new("", "") }
    }

    /// A source of another library, as [`file`](Self::file), [`line`](Self::line), [`text`](Self::text) and
    /// [`headers`](Self::headers) tell it there.
    pub fn of_library(file: String, line: u32, text: String, headers: Vec<Header>) -> Source {
        Source { headers: Cow::Owned(headers), ..Source::generated(file, text).first_line(line) }
    }

    /// The same source, whose file lies in the folder of the Rust file at this path, which `file!()` gives.
    #[must_use]
    pub const fn beside(mut self, rust_file: &'static str) -> Source {
        self.beside = rust_file;
        self
    }

    /// The same source, whose first line is this one of the file: of a text that is written into another.
    #[must_use]
    pub const fn first_line(mut self, line: u32) -> Source {
        self.first_line = line;
        self
    }

    /// Its name, the last part of its file's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its text, as its author wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The headers that it may include.
    pub fn headers(&self) -> &[Header] {
        &self.headers
    }

    /// The number of its first line in its file.
    pub fn line(&self) -> u32 {
        self.first_line
    }

    /// Its author's file, which messages name.
    pub fn file(&self) -> String {
        match Path::new(self.beside).parent() {
            Some(folder) if !self.beside.is_empty() => {
                folder.join(&*self.name).to_string_lossy().into_owned()
            }
            _ => self.name.clone().into_owned(),
        }
    }

    /// What the compiler reads: the text, behind a line that says where it comes from.
    pub(crate) fn program(&self) -> String {
        let file = self.file().replace('\\', "\\\\").replace('"', "\\\"");
        format!("#line {} \"{file}\"\n{}", self.first_line, self.text)
    }

    /// A digest of all that decides what it means.
    pub fn key(&self) -> u128 {
        *self.key.get_or_init(|| {
            let headers =
                self.headers.iter().fold(Digest::new(), |digest, (_, text)| digest.part(text.as_bytes()));
            headers.part(self.program().as_bytes()).finish()
        })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.file())
    }
}

/// The generation of a card: `sm_90` is 90.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Architecture(pub u32);

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.0)
    }
}

/// What a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Machine code of this generation of cards.
    Machine(Architecture),
    /// PTX, which the driver compiles for cards of this generation and later ones.
    Portable(Architecture),
}

impl Target {
    /// The compiler's option.
    pub(crate) fn option(self) -> String {
        match self {
            Target::Machine(architecture) => format!("--gpu-architecture={architecture}"),
            Target::Portable(Architecture(number)) => format!("--gpu-architecture=compute_{number}"),
        }
    }
}

/// A kernel, compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Its name in the image, of which C++ makes more than the author wrote.
    pub symbol: String,
    /// Machine code, or PTX ended by a NUL.
    pub image: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_authors_file() {
        let source = Source::new("a.cu", "int x;").beside("crates/a/src/lib.rs").first_line(7);
        assert_eq!(source.file(), "crates/a/src/a.cu");
        assert_eq!(source.program(), "#line 7 \"crates/a/src/a.cu\"\nint x;");
        assert_eq!(Source::generated("gelu.cu", "").file(), "gelu.cu");
    }

    #[test]
    fn headers_have_no_comments_and_are_there_where_they_are_included() {
        let [(_, base), ..] = &HEADERS;
        assert!(HEADERS.iter().all(|(_, text)| !text.contains("//")));
        assert_eq!(base.lines().count(), include_str!("opsmith.cuh").lines().count());
        assert_eq!(Source::new("a.cu", "#include \"opsmith.cuh\"").headers().len(), 1);
        assert_eq!(Source::new("a.cu", "#include \"opsmith_gemm.cuh\"").headers().len(), 2);
        assert_eq!(Source::new("a.cu", "#include \"opsmith_fold.cuh\"").headers().len(), 2);
    }

    #[test]
    fn a_source_of_another_library_is_the_same() {
        let own = Source::new("a.cu", "#include \"opsmith.cuh\"").beside("crates/a/src/lib.rs").first_line(7);
        let headers = own.headers().to_vec();
        let other = Source::of_library(own.file(), own.line(), own.text().to_owned(), headers);
        assert_eq!((other.file(), other.program(), other.key()), (own.file(), own.program(), own.key()));
    }

    #[test]
    fn keys_differ_where_the_text_does() {
        let key = |text: &'static str| Source::new("a.cu", text).key();
        assert_eq!(key("a"), key("a"));
        assert_ne!(key("a"), key("b"));
    }
}
