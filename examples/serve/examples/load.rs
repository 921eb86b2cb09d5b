//! Asks a server for as much as it answers over some connections, and tells how much that was and how long answers took.
//!
//! `cargo run --release -p serve --example load -- 127.0.0.1:8080 BODY.json [CONNECTIONS [SECONDS]]`

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// What one connection saw.
#[derive(Default)]
struct Seen {
    times: Vec<Duration>,
    /// Requests that were sent whole and got no answer.
    lost: usize,
    refused: usize,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, body, rest @ ..] = &arguments[..] else {
        bail!("usage: load ADDRESS BODY.json [CONNECTIONS [SECONDS]]");
    };
    let number = |at: usize, default: u64| rest.get(at).map_or(Ok(default), |text| text.parse());
    let (connections, seconds) = (number(0, 16)?, number(1, 10)?);
    let body = std::fs::read(body).with_context(|| format!("cannot read {body}"))?;
    let head = format!(
        "POST /run HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), &body].concat();
    eprintln!("{connections} connections for {seconds} s");
    let begun = Instant::now();
    let end = begun + Duration::from_secs(seconds);
    let seen = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..connections).map(|_| scope.spawn(|| connection(address, &request, end))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    let took = begun.elapsed();
    let mut times: Vec<Duration> = seen.iter().flat_map(|seen| seen.times.iter().copied()).collect();
    times.sort_unstable();
    ensure!(!times.is_empty(), "there was no answer");
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!(
        "{} answers in {:.1} s, {:.0} a second; ms: median {:.3}, p99 {:.3}, longest {:.3}; {} refused, {} lost",
        times.len(),
        took.as_secs_f64(),
        times.len() as f64 / took.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0),
        seen.iter().map(|seen| seen.refused).sum::<usize>(),
        seen.iter().map(|seen| seen.lost).sum::<usize>(),
    );
    let is_whole = seen.iter().all(|seen| seen.refused == 0 && seen.lost == 0);
    ensure!(is_whole, "requests were refused or lost");
    Ok(())
}

/// Sends one request after another until the time is over or the server ends the connection.
fn connection(address: &str, request: &[u8], end: Instant) -> Result<Seen> {
    let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut seen = Seen::default();
    let mut head = String::new();
    while Instant::now() < end {
        let begun = Instant::now();
        if stream.get_mut().write_all(request).is_err() {
            seen.lost += 1;
            break;
        }
        match answer(&mut stream, &mut head) {
            Ok(status) => {
                seen.times.push(begun.elapsed());
                seen.refused += usize::from(status != 200);
            }
            Err(_) => {
                seen.lost += 1;
                break;
            }
        }
        if head.contains("connection: close") {
            break;
        }
    }
    Ok(seen)
}

/// Reads an answer, of which the status is told.
fn answer(stream: &mut BufReader<TcpStream>, head: &mut String) -> Result<u16> {
    head.clear();
    while !head.ends_with("\r\n\r\n") {
        ensure!(stream.read_line(head)? > 0, "the connection ended");
    }
    head.make_ascii_lowercase();
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).context("no length")?;
    let mut body = vec![0; length.trim().parse()?];
    stream.read_exact(&mut body)?;
    Ok(status)
}
