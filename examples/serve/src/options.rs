//! The command line.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Serves a graph that the engine saved (`Graph::save`), or a model of ONNX.
#[derive(Debug, clap::Parser)]
#[command(version)]
pub(crate) struct Options {
    /// The file of the graph or model
    pub(crate) model: PathBuf,
    /// A library whose ops the model calls, once for each; it is code, and runs with all rights of this process
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Vec<PathBuf>,
    /// An output that answers have, by its name in the model, once for each. Required for a graph; of an ONNX model all are the default
    #[arg(long, value_name = "NAME")]
    pub(crate) output: Vec<String>,
    /// The values of the graph's variables, as `Session.save` wrote them, for the same outputs as the graph; a graph with variables needs it
    #[arg(long, value_name = "FILE", conflicts_with = "runtime")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Serve a graph whose variables have the values that they begin with, and no checkpoint
    #[arg(long, conflicts_with_all = ["checkpoint", "runtime"])]
    pub(crate) initial_values: bool,
    /// ONNX Runtime's library, `libonnxruntime.so`, which runs the model
    #[arg(long, value_name = "FILE")]
    pub(crate) runtime: Option<PathBuf>,
    /// States that row i of every output depends only on row i of every input. Without it, requests to an ONNX model are computed one
    /// by one. Graphs do not need it: their ops say so.
    #[arg(long)]
    pub(crate) free_rows: bool,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// How much of what the server gives to whom.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Limits {
    /// An address, or a name, and a port to listen at; port 0 is any that is free
    #[arg(long, default_value = "127.0.0.1:8080", value_parser = address, value_name = "ADDRESS:PORT")]
    pub(crate) listen: SocketAddr,
    /// Threads that run the model, each a request or a batch at a time. All share the threads that compute, of which there are as many as
    /// `OPSMITH_NUM_THREADS` says in the environment, or as there are cores. For small models set that variable to 1
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workers: u16,
    /// The most requests that are computed as one; 1 computes each by itself
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) batch: u16,
    /// The most bytes that the bodies of such requests have together; a larger one is computed by itself
    #[arg(long, default_value_t = 256 << 10, value_name = "BYTES")]
    pub(crate) batch_bytes: usize,
    /// The most bytes that a request's body has
    #[arg(long, default_value = "16777216", value_parser = bytes, value_name = "BYTES")]
    pub(crate) body: usize,
    /// The most requests that are read, computed or answered at a time; more are refused with 503
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// The most connections; more wait to be accepted
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) connections: u16,
    /// How many seconds a connection may wait for the whole head of its next request. Let it be longer than a proxy in front keeps idle
    /// connections
    #[arg(long, default_value = "75", value_parser = some_seconds, value_name = "SECONDS")]
    pub(crate) idle_time: Duration,
    /// How many seconds a client may take for the body of a request, and to take an answer
    #[arg(long, default_value = "10", value_parser = some_seconds, value_name = "SECONDS")]
    pub(crate) read_time: Duration,
    /// How many seconds a request may wait and be computed
    #[arg(long, default_value = "30", value_parser = some_seconds, value_name = "SECONDS")]
    pub(crate) answer_time: Duration,
    /// For how many seconds requests are still accepted after SIGTERM, while /health tells whoever sends them to stop
    #[arg(long, default_value = "1", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) linger: Duration,
    /// How many seconds requests may then take that are not answered yet
    #[arg(long, default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) grace: Duration,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected an address or name and a port, for example 127.0.0.1:8080";
    let mut found = text.to_socket_addrs().map_err(|error| format!("{error}: {expected}"))?;
    found.next().ok_or_else(|| format!("the name has no address: {expected}"))
}

fn bytes(text: &str) -> Result<usize, String> {
    let expected = "expected a number of bytes, at least 1";
    text.parse().ok().filter(|bytes| *bytes > 0).ok_or_else(|| expected.to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= Duration::from_secs(86_400) => Ok(duration),
        _ => Err("expected 0 to 86400 seconds".to_owned()),
    }
}

/// Seconds for something without which no request is answered.
fn some_seconds(text: &str) -> Result<Duration, String> {
    let duration = seconds(text)?;
    let expected = "expected more than 0 seconds: no request would be answered";
    if duration.is_zero() { Err(expected.to_owned()) } else { Ok(duration) }
}
