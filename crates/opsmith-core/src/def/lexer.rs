//! The words of the definition language, and a cursor over them.

use std::ops::Range;

use super::fault::Fault;

/// What a token is; its text is the span of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Letters, digits and underscores, not beginning with a digit.
    Name,
    /// Something that begins like a number; whether it is one is for its reader to say.
    Number,
    /// A quoted string, unescaped.
    Text(Vec<u8>),
    /// Punctuation: one character, or `>=` or `<=`.
    Sign,
    /// After the last token.
    End,
}

/// A word of the language.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Range<usize>,
}

/// The tokens of `text`, the last of them `End`.
fn lex(text: &str) -> Result<Vec<Token>, Fault> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let (kind, end) = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => (Kind::Name, name_end(bytes, at)),
            b'0'..=b'9' | b'.' | b'-' => (Kind::Number, number_end(bytes, at)),
            b'\'' | b'"' => {
                let (content, end) = string(text, at)?;
                (Kind::Text(content), end)
            }
            b'>' | b'<' if bytes.get(at + 1) == Some(&b'=') => (Kind::Sign, at + 2),
            b'{' | b'}' | b'(' | b')' | b'[' | b']' | b',' | b':' | b';' | b'=' | b'*' | b'>' | b'<' => {
                (Kind::Sign, at + 1)
            }
            _ => {
                let unknown = text[at..].chars().next().unwrap_or_default();
                let span = at..at + unknown.len_utf8();
                return Err(Fault::new(format!("unexpected character {unknown:?}"), span));
            }
        };
        tokens.push(Token { kind, span: at..end });
        at = end;
    }
    // What is missing is missing right after the last word, not after the spaces behind it.
    let end = tokens.last().map_or(0, |token| token.span.end);
    tokens.push(Token { kind: Kind::End, span: end..end });
    Ok(tokens)
}

fn name_end(bytes: &[u8], start: usize) -> usize {
    let more = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    start + bytes[start..].iter().take_while(|byte| more(byte)).count()
}

/// A sign, digits, letters (`inf`, `nan`, an exponent) and points; a minus also after an exponent's `e`.
fn number_end(bytes: &[u8], start: usize) -> usize {
    let mut end = start + 1;
    while let Some(&byte) = bytes.get(end) {
        let in_exponent = matches!(bytes[end - 1], b'e' | b'E') && matches!(byte, b'-' | b'+');
        if !(byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_' || in_exponent) {
            break;
        }
        end += 1;
    }
    end
}

/// The content of the string whose opening quote is at `start`, and where it ends.
fn string(text: &str, start: usize) -> Result<(Vec<u8>, usize), Fault> {
    let bytes = text.as_bytes();
    let quote = bytes[start];
    let mut content = Vec::new();
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            None | Some(b'\n') => return Err(Fault::new("this string is not closed", start..at)),
            Some(&byte) if byte == quote => return Ok((content, at + 1)),
            Some(b'\\') => at = escape(text, at, &mut content)?,
            Some(&byte) => {
                content.push(byte);
                at += 1;
            }
        }
    }
}

/// Adds what the escape sequence at `start` stands for, as in C, and gives where it ends.
fn escape(text: &str, start: usize, content: &mut Vec<u8>) -> Result<usize, Fault> {
    let after = &text.as_bytes()[start + 1..];
    let simple = match after.first() {
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'a') => 0x07,
        Some(b'b') => 0x08,
        Some(b'f') => 0x0c,
        Some(b'v') => 0x0b,
        Some(&byte @ (b'\\' | b'\'' | b'"' | b'?')) => byte,
        Some(b'0'..=b'7') => {
            let (number, length) = digits(after, 8, 3);
            let byte = u8::try_from(number)
                .map_err(|_| Fault::new("this escape is above \\377", start..start + 1 + length))?;
            content.push(byte);
            return Ok(start + 1 + length);
        }
        Some(b'x' | b'X') => {
            let (number, length) = digits(&after[1..], 16, 2);
            if length == 0 {
                return Err(Fault::new("`\\x` takes one or two hexadecimal digits", start..start + 2));
            }
            content.push(number as u8);
            return Ok(start + 2 + length);
        }
        Some(&letter @ (b'u' | b'U')) => {
            let wanted = if letter == b'u' { 4 } else { 8 };
            let (number, length) = digits(&after[1..], 16, wanted);
            let character = char::from_u32(number).filter(|_| length == wanted).ok_or_else(|| {
                let letter = letter as char;
                let message = format!("`\\{letter}` takes {wanted} hexadecimal digits of a character");
                Fault::new(message, start..start + 2 + length)
            })?;
            content.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(start + 2 + length);
        }
        _ => {
            let length = text[start + 1..].chars().next().map_or(0, char::len_utf8);
            return Err(Fault::new("unknown escape", start..start + 1 + length));
        }
    };
    content.push(simple);
    Ok(start + 2)
}

/// The number that up to `most` leading digits make, and how many there are.
fn digits(bytes: &[u8], radix: u32, most: usize) -> (u32, usize) {
    let found = bytes.iter().take(most).map_while(|&byte| (byte as char).to_digit(radix));
    found.fold((0, 0), |(number, length), digit| (number * radix + digit, length + 1))
}

/// A cursor over the tokens of a text.
pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    tokens: Vec<Token>,
    next: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Result<Cursor<'a>, Fault> {
        Ok(Cursor { text, tokens: lex(text)?, next: 0 })
    }

    /// The next token, not taken.
    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.next]
    }

    /// The text of the next token, empty at the end.
    pub(super) fn peek_text(&self) -> &'a str {
        &self.text[self.peek().span.clone()]
    }

    /// Takes the next token; at the end, stays there.
    pub(super) fn take(&mut self) -> Token {
        let token = self.peek().clone();
        if token.kind != Kind::End {
            self.next += 1;
        }
        token
    }

    /// Where the last taken token ends.
    pub(super) fn previous_end(&self) -> usize {
        self.next.checked_sub(1).map_or(0, |previous| self.tokens[previous].span.end)
    }

    /// Takes the next token if it is this punctuation.
    pub(super) fn eat(&mut self, sign: &str) -> bool {
        let found = self.peek().kind == Kind::Sign && self.peek_text() == sign;
        self.next += usize::from(found);
        found
    }

    /// Takes this punctuation; `place` says where it belongs: "after the name".
    pub(super) fn expect(&mut self, sign: &str, place: &str) -> Result<(), Fault> {
        if self.eat(sign) { Ok(()) } else { Err(self.expected(&format!("`{sign}` {place}"))) }
    }

    /// Takes a name; `what` says of what: "the name of an attribute".
    pub(super) fn name(&mut self, what: &str) -> Result<(&'a str, Range<usize>), Fault> {
        if self.peek().kind != Kind::Name {
            return Err(self.expected(what));
        }
        let span = self.take().span;
        Ok((&self.text[span.clone()], span))
    }

    /// Takes an integer.
    pub(super) fn int(&mut self, what: &str) -> Result<(i64, Range<usize>), Fault> {
        if self.peek().kind != Kind::Number {
            return Err(self.expected(what));
        }
        let span = self.take().span;
        Ok((parse_int(self.text, &span)?, span))
    }

    /// Takes a float, which may be written as an integer, `inf`, `-inf` or `nan`.
    pub(super) fn float(&mut self, what: &str) -> Result<(f64, Range<usize>), Fault> {
        let word = self.peek_text();
        let by_name = ["inf", "infinity", "nan"].iter().any(|name| word.eq_ignore_ascii_case(name));
        if self.peek().kind != Kind::Number && !by_name {
            return Err(self.expected(what));
        }
        let span = self.take().span;
        Ok((parse_float(self.text, &span)?, span))
    }

    /// The fault that something else was expected in the place of the next token.
    pub(super) fn expected(&self, what: &str) -> Fault {
        let found = match self.peek().kind {
            Kind::End => "the text ends".to_owned(),
            _ => format!("found `{}`", self.peek_text()),
        };
        Fault::new(format!("expected {what}, but {found}"), self.peek().span.clone())
    }

    /// Fails unless every token was taken.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        match self.peek().kind {
            Kind::End => Ok(()),
            _ => Err(Fault::new(format!("unexpected `{}`", self.peek_text()), self.peek().span.clone())),
        }
    }
}

/// The integer, of any width up to 64 bits, that the span holds.
pub(super) fn parse_int<T>(text: &str, span: &Range<usize>) -> Result<T, Fault>
where
    T: TryFrom<i128>,
{
    let word = &text[span.clone()];
    let wide: i128 = word
        .parse()
        .map_err(|_| Fault::new(format!("expected an integer, but found `{word}`"), span.clone()))?;
    T::try_from(wide).map_err(|_| {
        let name = std::any::type_name::<T>();
        Fault::new(format!("{word} does not fit in {name}"), span.clone())
    })
}

/// The truth value that the span holds, as protocol buffers spell it.
pub(super) fn parse_bool(text: &str, span: &Range<usize>) -> Result<bool, Fault> {
    match &text[span.clone()] {
        "true" | "True" => Ok(true),
        "false" | "False" => Ok(false),
        word => Err(Fault::new(format!("expected `true` or `false`, but found `{word}`"), span.clone())),
    }
}

/// The float that the span holds; a trailing `f` is allowed, as in C. Every NaN is the same one.
pub(super) fn parse_float<T>(text: &str, span: &Range<usize>) -> Result<T, Fault>
where
    T: std::str::FromStr + num_traits::Float,
{
    let word = &text[span.clone()];
    let number = match word.strip_suffix(['f', 'F']) {
        Some(number) if number.ends_with(|c: char| c.is_ascii_digit() || c == '.') => number,
        _ => word,
    };
    match number.parse::<T>() {
        Ok(value) => Ok(if value.is_nan() { T::nan() } else { value }),
        Err(_) => Err(Fault::new(format!("expected a number, but found `{word}`"), span.clone())),
    }
}
