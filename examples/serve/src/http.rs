//! Requests and answers: what is asked for, what is refused, and how errors look.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use opsmith_core::{Code, Error, memory};
use serde_json::json;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};

use crate::batch::{Format, Job, Queue};
use crate::metrics::{Counted, Metrics};
use crate::model::{Argument, Model};
use crate::options::Limits;

const JSON: &str = "application/json";
const SAFETENSORS: &str = "application/safetensors";

/// The most bytes of a body that are read and left once the answer is there.
const MOST_LEFT: u64 = 1 << 30;

/// What all connections share.
pub(crate) struct Server {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) limits: Limits,
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) room: Arc<Semaphore>,
    /// Whether it ends soon.
    pub(crate) ends: AtomicBool,
    /// Told when a worker ends.
    pub(crate) stopped: Arc<Notify>,
}

/// Why a request is not answered.
struct Refusal {
    status: StatusCode,
    error: Error,
}

impl Refusal {
    fn new(status: StatusCode, code: Code, text: impl Into<String>) -> Refusal {
        Refusal { status, error: Error::new(code, text.into()) }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let status = match error.code() {
            Code::InvalidArgument | Code::OutOfRange | Code::DataLoss => StatusCode::BAD_REQUEST,
            Code::ResourceExhausted | Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refusal { status, error }
    }
}

type Answer = Response<Full<Bytes>>;

impl Server {
    /// Answers a request; what is wrong with it is an answer too.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, mut body) = request.into_parts();
        let mut answer = match self.route(&head, &mut body).await {
            Ok(answer) => answer,
            Err(refusal) => refused(&refusal),
        };
        // A client that still writes when the connection ends would not see the answer. One that waits for leave to write, or was
        // given its time, gets the answer alone.
        let is_left = !answer.status().is_success() && !body.is_end_stream();
        let reads_on = answer.status() != StatusCode::REQUEST_TIMEOUT
            && !head.headers.contains_key(EXPECT)
            && body.size_hint().lower() <= MOST_LEFT;
        if is_left && reads_on {
            tokio::spawn(leave(body, self.limits.read_time));
        }
        if self.ends.load(Ordering::Relaxed) || is_left && !reads_on {
            answer.headers_mut().insert(CONNECTION, "close".parse().expect("it is a header's value"));
        }
        self.metrics.answer(answer.status().as_u16());
        answer
    }

    async fn route(&self, head: &Parts, body: &mut Incoming) -> Result<Answer, Refusal> {
        let (path, method) = (head.uri.path(), &head.method);
        let (allowed, is_allowed) = match path {
            "/run" => ("POST", method == Method::POST),
            "/model" | "/health" | "/metrics" => {
                ("GET, HEAD", method == Method::GET || method == Method::HEAD)
            }
            _ => {
                let paths = "there are `POST /run`, `GET /model`, `GET /health` and `GET /metrics`";
                let path: String = path.chars().take(80).collect();
                return Err(Refusal::new(
                    StatusCode::NOT_FOUND,
                    Code::NotFound,
                    format!("there is no `{path}`; {paths}"),
                ));
            }
        };
        if !is_allowed {
            let text = format!("`{path}` takes {allowed}, got {method}");
            let mut answer =
                refused(&Refusal::new(StatusCode::METHOD_NOT_ALLOWED, Code::InvalidArgument, text));
            answer.headers_mut().insert(ALLOW, allowed.parse().expect("it is a header's value"));
            return Ok(answer);
        }
        match path {
            "/run" => {
                let begun = Instant::now();
                let answer = self.run(head, body).await;
                self.metrics.took(begun.elapsed());
                answer
            }
            "/model" => Ok(ok(JSON, self.description())),
            "/metrics" => Ok(ok("text/plain; version=0.0.4", self.metrics.text())),
            _ if self.ends.load(Ordering::Relaxed) => {
                let text = "the server is stopping";
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, text))
            }
            _ => Ok(ok(JSON, json!({"status": "ok"}).to_string())),
        }
    }

    fn description(&self) -> String {
        let list = |arguments: &[Argument]| -> Vec<_> {
            let one = |argument: &Argument| {
                let Argument { name, dtype, shape } = argument;
                json!({"name": name, "dtype": dtype.name(), "shape": shape.to_json()})
            };
            arguments.iter().map(one).collect()
        };
        let (inputs, outputs) = (list(self.model.inputs()), list(self.model.outputs()));
        let why_alone = self.model.why_alone();
        let mut description = json!({"inputs": inputs, "outputs": outputs, "batched": why_alone.is_none()});
        if let Some(why) = why_alone {
            description["why_not_batched"] = why.into();
        }
        description.to_string()
    }

    async fn run(&self, head: &Parts, body: &mut Incoming) -> Result<Answer, Refusal> {
        let format = format_of(&head.headers)?;
        let answer = accepted(&head.headers).unwrap_or(format);
        let Ok(permit) = self.room.clone().try_acquire_owned() else {
            let most = self.limits.concurrency;
            let text = format!(
                "the server already reads, computes or answers {most} requests, as many as its --concurrency allows: ask again"
            );
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, text));
        };
        let _active = Counted::new(&self.metrics.active);
        let body = match timeout(self.limits.read_time, read(body, self.limits.body)).await {
            Ok(body) => body?,
            Err(_) => {
                let text = format!(
                    "the body was not there after {:?}, the server's --read-time",
                    self.limits.read_time
                );
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded, text));
            }
        };
        let (reply, waiting) = oneshot::channel();
        self.queue.push(Job { body, format, answer, reply, permit });
        let bytes = match timeout(self.limits.answer_time, waiting).await {
            Ok(Ok(bytes)) => bytes?,
            Ok(Err(_)) => return Err(Error::internal("the request was lost").into()),
            Err(_) => {
                let text = format!(
                    "there was no answer after {:?}, the server's --answer-time",
                    self.limits.answer_time
                );
                return Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded, text));
            }
        };
        let kind = if answer == Format::Json { JSON } else { SAFETENSORS };
        Ok(ok(kind, self.taken_in_time(bytes, head.extensions.get())))
    }

    /// The bytes of an answer, which ends its connection unless all have been taken in time. The system looks only at whether some are.
    fn taken_in_time(&self, bytes: Bytes, connection: Option<&Connection>) -> Bytes {
        let Some(task) = connection.and_then(|connection| connection.get()).cloned() else { return bytes };
        let (time, metrics) = (self.limits.read_time, self.metrics.clone());
        let timer = tokio::spawn(async move {
            sleep(time).await;
            metrics.cut();
            task.abort();
        });
        Bytes::from_owner(Timed { bytes, timer })
    }
}

/// The task of a connection, once it runs.
pub(crate) type Connection = Arc<OnceLock<AbortHandle>>;

/// The bytes of an answer, with the task that ends its connection when its time is over.
struct Timed {
    bytes: Bytes,
    timer: JoinHandle<()>,
}

impl AsRef<[u8]> for Timed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

/// What the body is, by its headers.
fn format_of(headers: &HeaderMap) -> Result<Format, Refusal> {
    let unsupported =
        |text| Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::InvalidArgument, text));
    if let Some(encoding) = headers.get(CONTENT_ENCODING)
        && encoding != "identity"
    {
        return unsupported(format!("bodies are taken as they are, got the encoding {encoding:?}"));
    }
    let given = headers.get(CONTENT_TYPE).map_or(JSON, |value| value.to_str().unwrap_or_default());
    match named(given.split(';').next().unwrap_or_default().trim()) {
        Some(format) => Ok(format),
        None => unsupported(format!(
            "the body may be {JSON} or {SAFETENSORS}, got `{given}` in the header Content-Type"
        )),
    }
}

/// The first format that the client says it takes; none where that is any, or neither.
fn accepted(headers: &HeaderMap) -> Option<Format> {
    let all = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut parts = all.flat_map(|value| value.split(',')).map(|kind| kind.split(';').map(str::trim));
    parts.find_map(|mut parts| {
        let kind = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        let is_refused = quality == Some(0.0);
        match (is_refused, kind) {
            (true, _) => None,
            (false, "*/*" | "application/*") => Some(None),
            (false, kind) => named(kind).map(Some),
        }
    })?
}

/// The format of a media type, whose letters may be of either case.
fn named(kind: &str) -> Option<Format> {
    let is = |own| kind.eq_ignore_ascii_case(own);
    is(JSON).then_some(Format::Json).or_else(|| is(SAFETENSORS).then_some(Format::Safetensors))
}

/// Reads a body of at most so many bytes; no more memory is taken than has come.
async fn read(body: &mut Incoming, most: usize) -> Result<Vec<u8>, Refusal> {
    let too_large = |length: u64| {
        let text = format!("the body may have {most} bytes, the server's --body, got {length}");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted, text)
    };
    let stated = body.size_hint().lower();
    if stated > most as u64 {
        return Err(too_large(stated));
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let text = format!("the body cannot be read: {error}");
            Refusal::new(StatusCode::BAD_REQUEST, Code::InvalidArgument, text)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > most {
            return Err(too_large(length as u64));
        }
        memory::reserve(&mut bytes, data.len(), "a request's body")?;
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// Reads the rest of a body, and keeps nothing. What takes too long or is too much ends the connection.
async fn leave(mut body: Incoming, time: Duration) {
    let rest = async {
        let mut length = 0;
        while length <= MOST_LEFT {
            let Some(Ok(frame)) = body.frame().await else { break };
            length += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
    };
    let _ = timeout(time, rest).await;
}

fn ok(kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    answer.headers_mut().insert(CONTENT_TYPE, kind.parse().expect("it is a header's value"));
    answer
}

/// An error as whoever asked gets it.
fn refused(refusal: &Refusal) -> Answer {
    let Refusal { status, error } = refusal;
    let text = error.message();
    let body = json!({"error": {
        "code": error.code().name(), "op": error.op(), "argument": error.argument(), "message": text,
    }});
    let mut answer = ok(JSON, body.to_string());
    *answer.status_mut() = *status;
    if *status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(RETRY_AFTER, 1.into());
    }
    answer
}
