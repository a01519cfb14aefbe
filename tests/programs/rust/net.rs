//! Asserts std::net: an echo server with a thread per connection and 64 client threads, time-outs, non-blocking mode,
//! UDP, Unix sockets, shutdown.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 64;

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return,
            n => stream.write_all(&buffer[..n]).unwrap(),
        }
    }
}

fn client(address: SocketAddr, id: usize) -> u64 {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = &stream;
    let mut sum = 0;
    for n in 0..50 {
        let line = format!("client {id} sends {n} {}\n", "x".repeat(n * 7 % 300));
        writer.write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        reader.read_line(&mut reply).unwrap();
        assert_eq!(line, reply);
        sum += reply.len() as u64;
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(reader.read(&mut [0; 10]).unwrap(), 0);
    sum
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let threads: Vec<_> =
            listener.incoming().take(CLIENTS).map(|s| thread::spawn(|| echo(s.unwrap()))).collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
    let clients: Vec<_> = (0..CLIENTS).map(|id| thread::spawn(move || client(address, id))).collect();
    let total: u64 = clients.into_iter().map(|t| t.join().unwrap()).sum();
    server.join().unwrap();
    println!("ok echo: {total} bytes");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    ours.set_read_timeout(Some(Duration::from_millis(40))).unwrap();
    let start = Instant::now();
    assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(start.elapsed() >= Duration::from_millis(39));
    ours.set_read_timeout(None).unwrap();
    ours.set_nonblocking(true).unwrap();
    assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    ours.set_nonblocking(false).unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        ours.read_to_end(&mut all).unwrap();
        all.len()
    });
    theirs.write_all(&vec![7; 3_000_000]).unwrap();
    drop(theirs);
    assert_eq!(reader.join().unwrap(), 3_000_000);
    drop(listener);
    let gone = { TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    assert_eq!(TcpStream::connect(gone).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(TcpStream::connect_timeout(&gone, Duration::from_secs(5)).is_err());
    println!("ok time-outs, non-blocking, refused");

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = socket.local_addr().unwrap();
    let receiver = thread::spawn(move || {
        let mut sum = 0;
        for _ in 0..100 {
            let mut byte = [0; 8];
            let (n, from) = socket.recv_from(&mut byte).unwrap();
            sum += u64::from(byte[0]);
            socket.send_to(&byte[..n], from).unwrap();
        }
        sum
    });
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(to).unwrap();
    for n in 0..100u8 {
        sender.send(&[n]).unwrap();
        let mut byte = [0; 8];
        assert_eq!(sender.recv(&mut byte).unwrap(), 1);
        assert_eq!(byte[0], n);
    }
    assert_eq!(receiver.join().unwrap(), 4950);
    println!("ok UDP");

    let (mut left, mut right) = UnixStream::pair().unwrap();
    let partner = thread::spawn(move || {
        let mut byte = [0];
        while right.read(&mut byte).unwrap() == 1 {
            byte[0] = byte[0].wrapping_add(1);
            right.write_all(&byte).unwrap();
        }
    });
    let mut byte = [0];
    for n in 0..2000u32 {
        left.write_all(&byte).unwrap();
        left.read_exact(&mut byte).unwrap();
        assert_eq!(u32::from(byte[0]), (n + 1) % 256);
    }
    left.shutdown(Shutdown::Both).unwrap();
    partner.join().unwrap();
    println!("ok Unix sockets");
}
