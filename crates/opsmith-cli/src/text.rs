//! How the program writes: 80 columns, colours on a terminal only.

use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Error};
use indicatif::{ProgressBar, ProgressStyle};

/// As many columns as a line may have.
pub(crate) const WIDTH: usize = 80;

/// What is most important: names, headings.
pub(crate) const STRONG: Style = Style::new().bold();
/// What is less important than the rest.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// What is wrong.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// What wants a look.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// What is right.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();

/// The text in a style, which goes where there are no colours.
pub(crate) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// The text in lines of 80 columns, each behind `indent` spaces. Words that are longer stay whole.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let spaces = " ".repeat(indent);
    let options = textwrap::Options::new(WIDTH).initial_indent(&spaces).subsequent_indent(&spaces);
    textwrap::fill(text, options.break_words(false).word_splitter(textwrap::WordSplitter::NoHyphenation))
}

/// Writes to standard output, without styles where that is no terminal or `NO_COLOR` is set. That nobody reads it any
/// more, as when it goes to `head`, is no error: the exit status still counts.
///
/// # Errors
/// When it cannot be written to.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output cannot be written to"),
    }
}

/// Writes an error, its causes behind it, to standard error.
pub(crate) fn print_error(error: &Error) {
    // Where it cannot be written, the exit status tells it.
    let _ = writeln!(anstream::stderr(), "{} {error:#}", styled(BAD, "error:"));
}

/// A line on a terminal that tells what is being done.
pub(crate) fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} [{elapsed}] {msg}");
    let bar = ProgressBar::new_spinner();
    bar.set_style(style.expect("the template is constant and well formed"));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// `512 kB`, `1.3 MB`.
pub(crate) fn human_size(bytes: u64) -> String {
    match bytes as f64 / 1000.0 {
        kilobytes if kilobytes < 999.5 => format!("{kilobytes:.0} kB"),
        kilobytes => format!("{:.1} MB", kilobytes / 1000.0),
    }
}
