//! How the ranks meet: rank 0 listens, the others come to it, and it tells all of them the ring.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::RingError;
use crate::ring::dial;
use crate::settings::Settings;
use crate::wire::{Report, Shape, Start, Word, receive, send};

/// How long a stranger may stay silent.
const SILENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// All ranks are here.
pub(crate) struct Meeting {
    pub(crate) start: Start,
    /// The rank before connects to this.
    pub(crate) listener: TcpListener,
    /// On rank 0 connections to all others, by rank; elsewhere the one to rank 0.
    pub(crate) peers: BTreeMap<u32, BufReader<TcpStream>>,
}

/// Meets all other ranks. `resume` counts the steps that this one has behind it.
pub(crate) fn meet(settings: &Settings, resume: u64) -> Result<Meeting, RingError> {
    if settings.world_size == 1 {
        let listener = listen(Ipv4Addr::LOCALHOST.into(), 0)?;
        let start = Start { ring: Vec::new(), token: 0, resume };
        return Ok(Meeting { start, listener, peers: BTreeMap::new() });
    }
    if settings.rank == 0 { gather(settings, resume) } else { report(settings, resume) }
}

fn listen(ip: IpAddr, port: u16) -> Result<TcpListener, RingError> {
    TcpListener::bind((ip, port))
        .map_err(|source| RingError::Listen { address: SocketAddr::new(ip, port).to_string(), source })
}

fn resolve(settings: &Settings) -> io::Result<SocketAddr> {
    let found = (settings.master_addr.as_str(), settings.master_port).to_socket_addrs()?.next();
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
}

fn shape(settings: &Settings) -> Shape {
    let Settings { world_size, bytes, warmup, checkpoint_every, .. } = *settings;
    Shape { world_size, bytes, steps: settings.last_step(), warmup, checkpoint_every }
}

/// A rank that came to rank 0.
struct Arrival {
    rank: u32,
    shape: Shape,
    listens: SocketAddr,
    resume: u64,
    source: BufReader<TcpStream>,
}

/// Rank 0: waits until every rank is here.
fn gather(settings: &Settings, resume: u64) -> Result<Meeting, RingError> {
    let address = format!("{}:{}", settings.master_addr, settings.master_port);
    let bound = resolve(settings).map_err(|source| RingError::Listen { address, source })?;
    let master = listen(bound.ip(), bound.port())?;
    master.set_nonblocking(true).map_err(RingError::system("listen"))?;
    let listener = listen(bound.ip(), 0)?;
    let own = listener.local_addr().map_err(RingError::system("listen"))?;

    let (arrivals_in, arrivals) = mpsc::channel();
    let mut here: BTreeMap<u32, Arrival> = BTreeMap::new();
    let until = Instant::now() + settings.timeout();
    while here.len() + 1 < settings.world_size as usize {
        if let Ok((stream, _)) = master.accept() {
            let arrivals = arrivals_in.clone();
            thread::spawn(move || welcome(stream).map(|arrival| drop(arrivals.send(arrival))));
        }
        match arrivals.recv_timeout(PAUSE) {
            Ok(arrival) => admit(settings, &mut here, arrival),
            Err(_) if Instant::now() > until => return Err(missing(settings, &here)),
            Err(_) => {}
        }
    }
    let resume = here.values().map(|a| a.resume).fold(resume, u64::min);
    let ring = std::iter::once(own).chain(here.values().map(|a| a.listens)).collect();
    let start = Start { ring, token: token(), resume };
    for arrival in here.values() {
        // One that is gone by now is found lost when the ring is connected.
        drop(send(arrival.source.get_ref(), &Word::Start(start.clone())));
    }
    let peers = here.into_iter().map(|(rank, arrival)| (rank, arrival.source)).collect();
    Ok(Meeting { start, listener, peers })
}

/// Time is up; says so to those who came.
fn missing(settings: &Settings, here: &BTreeMap<u32, Arrival>) -> RingError {
    let missing = (1..settings.world_size).filter(|rank| !here.contains_key(rank));
    let missing: Vec<String> = missing.map(|rank| rank.to_string()).collect();
    let (came, world, seconds) = (here.len() + 1, settings.world_size, settings.timeout_s);
    let error = RingError::Missing { came, world, seconds, missing: missing.join(", ") };
    for arrival in here.values() {
        drop(send(arrival.source.get_ref(), &Word::Refused { why: error.to_string() }));
    }
    error
}

/// A number that another run would hardly have; it guards against mistakes, not against enemies.
fn token() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) << 32 ^ since.as_secs() ^ u64::from(std::process::id()) << 16
}

/// Hears who connected; strangers are dropped.
fn welcome(stream: TcpStream) -> Option<Arrival> {
    stream.set_nonblocking(false).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(SILENCE)).ok()?;
    let mut source = BufReader::new(stream);
    let Ok(Report::Here { rank, shape, listens, resume }) = receive(&mut source) else { return None };
    source.get_ref().set_read_timeout(None).ok()?;
    Some(Arrival { rank, shape, listens, resume, source })
}

fn admit(settings: &Settings, here: &mut BTreeMap<u32, Arrival>, arrival: Arrival) {
    let own = shape(settings);
    let why = if arrival.shape != own {
        format!("it was started with {:?}, and rank 0 with {own:?}", arrival.shape)
    } else if !(1..settings.world_size).contains(&arrival.rank) || here.contains_key(&arrival.rank) {
        format!("rank {} is taken", arrival.rank)
    } else {
        here.insert(arrival.rank, arrival);
        return;
    };
    drop(send(arrival.source.get_ref(), &Word::Refused { why }));
}

/// Other ranks: goes to rank 0 and waits for the ring.
fn report(settings: &Settings, resume: u64) -> Result<Meeting, RingError> {
    let lost = |e: io::Error| RingError::Lost { rank: 0, how: format!("it did not give out the ring: {e}") };
    let stream = reach_root(settings)?;
    let ip = stream.local_addr().map_err(RingError::system("read an address"))?.ip();
    let listener = listen(ip, 0)?;
    let listens = listener.local_addr().map_err(RingError::system("read an address"))?;
    let here = Report::Here { rank: settings.rank, shape: shape(settings), listens, resume };
    send(&stream, &here).map_err(lost)?;

    // Rank 0 gives up first, and says who was missing.
    let patience = Some(settings.timeout() + SILENCE);
    stream.set_read_timeout(patience).map_err(RingError::system("set a time-out"))?;
    let mut source = BufReader::new(stream);
    let start = match receive(&mut source).map_err(lost)? {
        Word::Start(start) => start,
        Word::Refused { why } => return Err(RingError::Refused(why)),
        Word::Lost { rank, how } => return Err(RingError::Lost { rank, how }),
        Word::Vote(_) | Word::Ping => return Err(RingError::Refused("it spoke before the start".to_owned())),
    };
    source.get_ref().set_read_timeout(None).map_err(RingError::system("set a time-out"))?;
    Ok(Meeting { start, listener, peers: BTreeMap::from([(0, source)]) })
}

/// Tries until rank 0 listens: it may start later, and its name may be known later.
fn reach_root(settings: &Settings) -> Result<TcpStream, RingError> {
    let until = Instant::now() + settings.timeout();
    loop {
        match resolve(settings).and_then(|address| dial(address, until)) {
            Ok(stream) => return Ok(stream),
            Err(source) if Instant::now() >= until => {
                let address = format!("{}:{}", settings.master_addr, settings.master_port);
                return Err(RingError::NoRoot { address, seconds: settings.timeout_s, source });
            }
            Err(_) => thread::sleep(PAUSE * 10),
        }
    }
}
