//! A thread-per-connection echo server and the program that puts it under load.
//!
//! A plain program: `std::thread` and `std::net`, nothing of Heddle's.
//!
//! `echo_server serve` listens on a free port of 127.0.0.1, prints `listening PORT`, and serves each connection in a thread
//! of its own until its standard input ends; then it prints `served REQUESTS`.
//!
//! `echo_server load PORT MILLISECONDS CONNECTIONS...` measures each number of connections in turn, in one thread, in
//! rounds: a message to every connection, then the answer from every connection, compared byte by byte. It prints
//! `connections N requests R seconds S` for each, and `sent REQUESTS` at the end.

use std::env;
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{self, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Bytes in a message.
const MESSAGE: usize = 64;
/// An answer that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Messages echoed by all of the server's threads.
static SERVED: AtomicU64 = AtomicU64::new(0);

/// Echoes messages until the other side closes.
fn echo(mut connection: TcpStream) -> io::Result<()> {
    let mut message = [0; MESSAGE];
    loop {
        match connection.read_exact(&mut message) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e),
        }
        // Counted first: the client may read the answer, end, and have the total asked for before we run again.
        SERVED.fetch_add(1, Ordering::Relaxed);
        connection.write_all(&message)?;
    }
}

fn accept(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (connection, _) = listener.accept()?;
        connection.set_nodelay(true)?;
        Builder::new().spawn(move || {
            if let Err(e) = echo(connection) {
                eprintln!("echo_server: a connection failed: {e}");
            }
        })?;
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("listening {}", listener.local_addr()?.port());
    Builder::new().spawn(move || {
        if let Err(e) = accept(&listener) {
            eprintln!("echo_server: cannot serve another connection: {e}");
            process::exit(1);
        }
    })?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    println!("served {}", SERVED.load(Ordering::Relaxed));
    Ok(())
}

/// The message that connection `index` sends in round `round`: no two are alike.
fn message(round: u64, index: usize) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    let mut value = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&value.to_le_bytes());
        value = value.rotate_left(7).wrapping_add(0x2545_f491_4f6c_dd1d);
    }
    bytes
}

/// Sends a message on every connection, then reads and compares every answer.
fn round(connections: &mut [TcpStream], number: u64) -> Result<(), Box<dyn Error>> {
    for (index, connection) in connections.iter_mut().enumerate() {
        connection.write_all(&message(number, index))?;
    }
    let mut answer = [0; MESSAGE];
    for (index, connection) in connections.iter_mut().enumerate() {
        connection.read_exact(&mut answer)?;
        if answer != message(number, index) {
            return Err(format!("connection {index}, round {number}: the answer is not what was sent").into());
        }
    }
    Ok(())
}

fn load(port: u16, time: Duration, counts: &[usize]) -> Result<(), Box<dyn Error>> {
    let mut sent = 0;
    for &count in counts {
        let mut connections = Vec::with_capacity(count);
        for index in 0..count {
            let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                .map_err(|e| format!("connection {index} of {count}: {e}"))?;
            connection.set_nodelay(true)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            connections.push(connection);
            // One message each at once: the server has accepted it, so its queue of new connections never fills.
            round(&mut connections[index..], index as u64)?;
        }
        let start = Instant::now();
        let mut rounds = 0;
        while start.elapsed() < time {
            round(&mut connections, rounds)?;
            rounds += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        let requests = rounds * count as u64;
        sent += requests + count as u64;
        println!("connections {count} requests {requests} seconds {seconds:.6}");
    }
    println!("sent {sent}");
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve(),
        ["load", port, milliseconds, ref counts @ ..] if !counts.is_empty() => {
            let counts: Vec<usize> = counts.iter().map(|count| count.parse()).collect::<Result<_, _>>()?;
            load(port.parse()?, Duration::from_millis(milliseconds.parse()?), &counts)
        }
        _ => Err("usage: echo_server serve | echo_server load PORT MILLISECONDS CONNECTIONS...".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("echo_server: {e}");
            ExitCode::FAILURE
        }
    }
}
