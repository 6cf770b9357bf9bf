//! Endpoints of services. Rank 0 of a replica writes its port to the file that `PHALANX_ENDPOINT` names, and the daemon reads
//! the files of a service when a client asks for its endpoints.

use std::io;
use std::path::Path;

use phalanx_model::{DomainName, GangId, GangRecord, JobId, NodeName, Phase, Timestamp};
use phalanx_shell::Engine;

use crate::clock::written_at;
use crate::daemon::Daemon;
use crate::rank_file::{last_line, tail, unread, words};
use crate::verbs::{self, Failure, refuse};
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, EndpointState, EndpointView, EndpointsView, ErrorCode, JobRef};

/// The file of a replica, in the folder of its attempt.
pub(crate) const FILE: &str = "endpoint";

const WEIGHT_MAX: u32 = 256;

/// What a replica reports: `port=8080 load=3 capacity=16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    port: u16,
    load: Option<u32>,
    capacity: Option<u32>,
}

impl Line {
    fn read(line: &str) -> Result<Self, String> {
        let (mut port, mut load, mut capacity) = (None, None, None);
        for (key, value) in words(line) {
            match key {
                "port" => {
                    let of_text = value.parse::<u16>().ok().filter(|port| *port > 0);
                    port = Some(of_text.ok_or("port is no number from 1 to 65535")?);
                }
                // It is shown, and decides nothing.
                "load" => load = value.parse().ok(),
                "capacity" => {
                    let of_text = value.parse::<u32>().map_err(|_| "capacity is no whole number")?;
                    capacity = Some(of_text).filter(|most| *most > 0);
                }
                _ => {}
            }
        }
        Ok(Self { port: port.ok_or("it has no port=NUMBER")?, load, capacity })
    }

    /// The last whole line of a file; `None` if the replica reported nothing, or withdrew its port by an empty file.
    fn of_file(path: &Path) -> Result<Option<Self>, String> {
        let text = match tail(path) {
            // A version that knew no endpoints started the replica.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| error.to_string())?,
        };
        last_line(&text).map(|line| Self::read(line).map_err(|why| unread(&why, line))).transpose()
    }
}

/// The endpoints of a service; with the distances from a node if one is given.
pub(crate) fn endpoints(
    daemon: &Daemon,
    peer: &Peer,
    wanted: &JobRef,
    from: Option<NodeName>,
) -> Result<Answer, Failure> {
    let (job, near) = (verbs::get(daemon, peer, wanted)?, from.clone());
    if job.ending.is_some() {
        let message = format!("job {} ({}) has ended", job.id, job.name);
        return Err(refuse(ErrorCode::NotFound, message, "`phalanx ps` lists jobs that run"));
    }
    if job.service.is_none() {
        let hint = "only replicas of services have endpoints: `service: {replicas: N}` in the job file";
        return Err(refuse(
            ErrorCode::BadRequest,
            format!("job {} ({}) is no service", job.id, job.name),
            hint,
        ));
    }
    let id = job.id;
    let found = daemon.engine.look(move |engine| replicas(engine, id, near.as_ref()))?;
    let levels = daemon.map.levels.above.clone();
    let Some(mut endpoints) = found else {
        let node = from.map_or_else(String::new, |node| node.to_string());
        return Err(refuse(ErrorCode::NotFound, format!("no node {node}"), "`phalanx nodes` lists them"));
    };
    for endpoint in &mut endpoints {
        let path = daemon.paths.attempt(id.gang(endpoint.replica), endpoint.attempt).join(FILE);
        endpoint.reported_at = written_at(&path).filter(|at| *at > Timestamp(0));
        match Line::of_file(&path) {
            Ok(Some(line)) => {
                (endpoint.port, endpoint.load, endpoint.capacity) =
                    (Some(line.port), line.load, line.capacity);
            }
            Ok(None) => {}
            // The line is the owner's.
            Err(why) if verbs::may_read(peer, &job) => endpoint.unread = Some(why),
            Err(_) => endpoint.unread = Some("its line cannot be parsed".to_owned()),
        }
        if endpoint.state == EndpointState::Ready && endpoint.port.is_none() {
            endpoint.state = EndpointState::NotReady;
        }
    }
    weigh(&mut endpoints);
    endpoints.sort_by_key(|endpoint| (endpoint.distance, endpoint.replica));
    Ok(Answer::Endpoints(EndpointsView { job: id, name: job.name, levels, endpoints, from }))
}

/// Sets the weights by the capacities of endpoints that are ready.
fn weigh(endpoints: &mut [EndpointView]) {
    let ready = || endpoints.iter().filter(|endpoint| endpoint.state == EndpointState::Ready);
    let all_report = ready().all(|endpoint| endpoint.capacity.is_some());
    let most = ready().filter_map(|endpoint| endpoint.capacity).max().filter(|_| all_report);
    for endpoint in endpoints {
        let of_capacity = most.zip(endpoint.capacity).map(|(most, own)| {
            let weight = u64::from(own) * u64::from(WEIGHT_MAX) / u64::from(most.max(1));
            u32::try_from(weight).unwrap_or(WEIGHT_MAX).clamp(1, WEIGHT_MAX)
        });
        endpoint.weight = of_capacity.unwrap_or(WEIGHT_MAX);
    }
}

/// The replicas of a job that run. `None` if there is no such node.
fn replicas(engine: &Engine, job: JobId, from: Option<&NodeName>) -> Option<Vec<EndpointView>> {
    let from = match from {
        Some(name) => Some(engine.node(name)?),
        None => None,
    };
    let gangs: Vec<GangId> = engine.job(job).map_or_else(Vec::new, |job| job.gang_ids().collect());
    let endpoint = |record: &GangRecord| {
        let state = match record.phase {
            Phase::Running { .. } => EndpointState::Ready,
            Phase::Stopping { .. } => EndpointState::Stopping,
            _ => return None,
        };
        let slot = record.placement.as_ref()?.slots.first()?;
        let node = engine.node(&slot.node)?;
        let distance = from.map(|from| match from.name == node.name {
            true => 0,
            false => distance(&from.path, &node.path),
        });
        Some(EndpointView {
            replica: record.id.index,
            attempt: record.attempt,
            state,
            node: node.name.clone(),
            path: node.path.clone(),
            devices: slot.devices,
            address: node.address.clone(),
            port: None,
            load: None,
            capacity: None,
            weight: WEIGHT_MAX,
            distance,
            reported_at: None,
            unread: None,
        })
    };
    Some(gangs.into_iter().filter_map(|gang| endpoint(engine.gang(gang)?)).collect())
}

/// Levels from a node up to the smallest domain that both nodes are in.
fn distance(one: &[DomainName], other: &[DomainName]) -> u32 {
    let common = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    u32::try_from(one.len().max(other.len()) - common + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_port_and_may_have_more() {
        let line = |port, load, capacity| Line { port, load, capacity };
        for (text, read) in [
            ("port=8080", Ok(line(8080, None, None))),
            ("load=3 port=1 capacity=16 model=llama", Ok(line(1, Some(3), Some(16)))),
            ("port=1 capacity=0", Ok(line(1, None, None))),
            ("load=3", Err("it has no port=NUMBER")),
            ("port=0", Err("port is no number from 1 to 65535")),
            ("port=65536", Err("port is no number from 1 to 65535")),
            ("port=80 load=2.5", Ok(line(80, None, None))),
            ("port=80 capacity=-1", Err("capacity is no whole number")),
        ] {
            assert_eq!(Line::read(text), read.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn an_empty_file_withdraws_the_port() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Line::of_file(&path).map(|line| line.map(|line| line.port))
        };
        assert_eq!(read("port=1\nport=2\n"), Ok(Some(2)));
        assert_eq!(read("port=3"), Ok(None), "the replica is writing it");
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("8080\n"), Err("it has no port=NUMBER: \"8080\"".to_owned()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Line::of_file(&path), Ok(None));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(Line::of_file(&path).is_err(), "nobody waits for it");
    }

    #[test]
    fn distance_counts_levels_to_the_common_domain() {
        let path = |text: &str| -> Vec<DomainName> {
            text.split('/').map(|name| DomainName::new(name).unwrap()).collect()
        };
        for (other, levels) in [("c/b1/r1", 1), ("c/b1/r2", 2), ("c/b2/r1", 3), ("d/b1/r1", 4)] {
            assert_eq!(distance(&path("c/b1/r1"), &path(other)), levels, "{other}");
        }
    }
}
