//! Connections: accepted within limits until the process is told to end, and ended when what came over them is answered.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::http::{Connection, Server};
use crate::metrics::Counted;
use crate::report;

/// How long nothing is accepted after the system had no room for a connection, and how long the last connections have to bring a
/// request.
const PAUSE: Duration = Duration::from_millis(100);

/// How many bytes a connection reads ahead; a head that is much longer is refused.
const READ_AHEAD: usize = 64 << 10;

/// Serves until SIGTERM or SIGINT. Then requests are still answered for the time that the limits say, each as the last of its
/// connection; after that no connection is accepted, and those that are there end with the answers that they wait for. It ends
/// the same way when a worker has ended. Returns until when what is left may take.
///
/// # Errors
/// That it cannot listen, or that requests were not answered in time when it ended.
pub(crate) async fn listen(server: Arc<Server>) -> Result<Instant> {
    let limits = &server.limits;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let told = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = server.stopped.notified() => report("a worker has ended, so the server ends"),
        }
        server.ends.store(true, Ordering::Relaxed);
        sleep(limits.linger).await;
    };
    let address = limits.listen;
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen at {address}"))?;
    // What it listens at is for programs to read, port 0 being any.
    writeln!(io::stdout(), "listening at http://{}", listener.local_addr()?)?;
    io::stdout().flush()?;

    let room = Arc::new(Semaphore::new(limits.connections.into()));
    let graceful = GracefulShutdown::new();
    tokio::pin!(told);
    loop {
        tokio::select! {
            () = &mut told => break,
            accepted = accept(&listener, &room) => serve(&server, &graceful, accepted),
        }
    }
    // Those whose clients think that they are connected, as the system knows them: the runtime may not have been told of all.
    let listener = listener.into_std()?;
    // They may be more than the limit: their requests may have been sent.
    while let Ok((stream, _)) = listener.accept() {
        if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
            serve(&server, &graceful, (stream, None));
        }
    }
    drop(listener);
    // A connection that has read nothing would be closed at once.
    sleep(PAUSE).await;
    let begun = Instant::now();
    let left = || usize::from(limits.concurrency) - server.room.available_permits();
    let shutdown = graceful.shutdown();
    tokio::pin!(shutdown);
    // A head that has begun has as long as a body; what then is not there is no request.
    let mut is_done = timeout(limits.grace.min(limits.read_time), &mut shutdown).await.is_ok();
    while !is_done && left() > 0 {
        ensure!(
            begun.elapsed() < limits.grace,
            "{} requests were not answered after {} seconds",
            left(),
            limits.grace.as_secs_f64()
        );
        is_done = timeout(PAUSE, &mut shutdown).await.is_ok();
    }
    // Workers without requests need a moment to end.
    Ok((begun + limits.grace).max(Instant::now() + 10 * PAUSE))
}

type Accepted = (TcpStream, Option<OwnedSemaphorePermit>);

/// The next connection, when there is room for one.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> Accepted {
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return std::future::pending().await };
        match listener.accept().await {
            Ok((stream, _)) => return (stream, Some(permit)),
            // A client that is gone already is no reason to wait; that there are no more files is.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                report(&format!("cannot accept a connection: {error}"));
                sleep(PAUSE).await;
            }
        }
    }
}

fn serve(server: &Arc<Server>, graceful: &GracefulShutdown, (stream, permit): Accepted) {
    let limits = &server.limits;
    // Without either it works too, only not as well.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_user_timeout(Some(limits.read_time));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.idle_time).max_buf_size(READ_AHEAD);
    let (own, task) = (server.clone(), Connection::default());
    let of_task = task.clone();
    let service = service_fn(move |mut request| {
        let server = own.clone();
        request.extensions_mut().insert(of_task.clone());
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    });
    let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
    let server = server.clone();
    let spawned = tokio::spawn(async move {
        let _counted = Counted::new(&server.metrics.connections);
        let _permit = permit;
        // What is wrong with a connection is its client's to see.
        let _ = connection.await;
    });
    let _ = task.set(spawned.abort_handle());
}
