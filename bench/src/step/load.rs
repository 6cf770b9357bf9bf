//! Who shares the cluster, and what they ask for: queues, requests and jobs, from a seed.

use phalanx_model::{
    ClassName, Gang, Job, JobId, JobName, Owner, Policy, Queue, QueueName, Resource, Timestamp, Turn,
};

use crate::placement::cluster::GPUS_PER_NODE;
use crate::placement::mix::{Random, level, of_size};

/// Sizes in GPUs, and how many of a thousand gangs have them. Half of the jobs of both Acme clusters have one GPU, the
/// largest 1,024, and their means are 5.7 (Seren) and 26.8 (Kalos): published, `AcmeTrace` `cluster_summary.csv`.
/// The mean here is 10, so that 10,000 gangs fill 102,400 GPUs.
const SIZES: [(u32, u64); 10] =
    [(1, 500), (2, 140), (4, 120), (8, 145), (16, 35), (32, 20), (64, 20), (128, 10), (256, 6), (512, 4)];
/// Largest gang that must be inside one leaf, and the part of a leaf that it is at most.
const LEAF_GPUS_MAX: u32 = 256;
/// Milliseconds, and how many of a hundred jobs have them: the first number of zero means none.
const TIME_LIMITS: [(u64, u64); 5] =
    [(0, 15), (HOUR_MS, 25), (4 * HOUR_MS, 25), (24 * HOUR_MS, 20), (72 * HOUR_MS, 15)];
pub(super) const HOUR_MS: u64 = 3_600_000;
/// Teams below one organisation.
const TEAMS_PER_ORG: u32 = 20;
/// Of all GPUs, in percent: what is guaranteed to somebody, and the part of it whose owner asks for nothing.
const GUARANTEED: u64 = 80;
const RESERVE: u64 = 2;
/// Of all GPUs, in percent: what is due to teams that are guaranteed nothing, and how many these are. Whoever is owed
/// something may take it back from them, whatever the rules are beside.
const OPEN: u64 = 12;
const OPEN_TEAMS: u32 = 8;
const USERS: u64 = 200;

/// One request of the mix.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) gang: Gang,
    /// Against the others.
    weight: u64,
}

/// A team: its queue, and what is due to it while everybody asks for more than there is.
#[derive(Debug)]
pub(super) struct Team {
    pub(super) queue: Queue,
    pub(super) due: u64,
}

/// What is asked for, and by whom.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) requests: Vec<Request>,
    /// Organisations, and the reserve with its only team.
    pub(super) tops: Vec<Queue>,
    /// Those that work.
    pub(super) teams: Vec<Team>,
    pub(super) reserve: QueueName,
    /// GPUs.
    pub(super) reserved: u64,
}

impl Load {
    /// `teams` queues of a cluster of `gpus`.
    pub(super) fn draw(gpus: u32, teams: u32, random: &mut Random) -> Result<Self, String> {
        let (tops, teams, reserve) =
            queues(u64::from(gpus), teams.max(OPEN_TEAMS + 2) - OPEN_TEAMS - 1, random)?;
        let reserved = u64::from(gpus) * RESERVE / 100;
        // A gang of more than an eighth of the cluster says more of itself than of the mix.
        Ok(Self { requests: requests(gpus / 8), tops, teams, reserve, reserved })
    }

    /// A request, as often as the mix has it.
    pub(super) fn request(&self, random: &mut Random) -> usize {
        weighted(self.requests.iter().map(|request| request.weight), random)
    }

    /// A team to which so many GPUs are due; the one with the most where hardly any has as many.
    pub(super) fn team(&self, gpus: u32, random: &mut Random) -> Option<&Team> {
        let tried = (0..64).filter_map(|_| self.teams.get(below(random, self.teams.len())));
        let fits = |team: &&Team| team.due >= u64::from(gpus);
        tried.into_iter().find(fits).or_else(|| self.teams.iter().max_by_key(|team| team.due))
    }
}

/// GPUs of a gang.
pub(super) const fn gpus_of(gang: &Gang) -> u32 {
    gang.size * gang.needs.devices
}

/// Every size with each topology that such jobs ask for, once with many CPUs and once with few. Ranks have one GPU each.
fn requests(largest: u32) -> Vec<Request> {
    let mut all = Vec::new();
    for (size, weight) in SIZES.into_iter().filter(|(size, _)| *size <= largest.max(1)) {
        let levels: &[Option<&str>] = match size {
            1 => &[None],
            2..=GPUS_PER_NODE => &[None, Some("node")],
            9..=LEAF_GPUS_MAX => &[None, Some("leaf"), Some("block")],
            _ => &[None, Some("block")],
        };
        for name in levels {
            for cpu_milli in [12_000, 20_000] {
                let mut gang = of_size(size);
                gang.needs.cpu_milli = cpu_milli;
                gang.members_per_node = (size > GPUS_PER_NODE).then_some(GPUS_PER_NODE);
                gang.topology.required = name.and_then(level);
                gang.program.argv = ["python", "train.py"].map(str::to_owned).to_vec();
                // The weights of one size stay together what the table says: 12 is divided by 1, 2 and 3.
                all.push(Request { gang, weight: weight * 12 / levels.len() as u64 });
            }
        }
    }
    all
}

/// Organisations and teams: the n-th team is guaranteed a part as 1 / (n + 8), so that few are large and most small;
/// all together [`GUARANTEED`]. One queue more has [`RESERVE`] of it, and no work; a few are guaranteed nothing.
fn queues(gpus: u64, teams: u32, random: &mut Random) -> Result<(Vec<Queue>, Vec<Team>, QueueName), String> {
    let orgs = teams.div_ceil(TEAMS_PER_ORG);
    let part = |n: u32| 1_000_000 / u64::from(n + 8);
    let parts: u64 = (0..teams).map(part).sum();
    let shared = gpus * (GUARANTEED - RESERVE) / 100;
    let guarantee = |n: u32| shared * part(n) / parts;
    let mut tops = Vec::new();
    let mut all = Vec::new();
    for org in 0..orgs {
        let of_org = (org..teams).step_by(orgs as usize);
        let top = queue(format!("org-{org}"), of_org.clone().map(guarantee).sum(), None, random)?;
        for (at, n) in of_org.enumerate() {
            let name = format!("org-{org}-team-{at}");
            all.push(queue(name, guarantee(n), Some(&top), random)?);
        }
        tops.push(top);
    }
    let weights: u64 = tops.iter().map(|top| top.weight_milli).sum();
    let mut open = queue("open".to_owned(), 0, None, random)?;
    open.weight_milli = weights * OPEN / (100 - GUARANTEED + RESERVE - OPEN);
    for at in 0..OPEN_TEAMS {
        all.push(queue(format!("open-team-{at}"), 0, Some(&open), random)?);
    }
    tops.push(open);
    let teams =
        all.iter().map(|team| Team { due: due(team, &tops, &all, gpus), queue: team.clone() }).collect();
    let reserve = queue("reserve".to_owned(), gpus * RESERVE / 100, None, random)?;
    let team = queue("reserve-team".to_owned(), gpus * RESERVE / 100, Some(&reserve), random)?;
    let name = team.name.clone();
    tops.extend([reserve, team]);
    Ok((tops, teams, name))
}

fn queue(text: String, gpus: u64, parent: Option<&Queue>, random: &mut Random) -> Result<Queue, String> {
    let name = QueueName::new(text).map_err(|e| e.to_string())?;
    let mut queue = Queue { parent: parent.map(|parent| parent.name.clone()), ..Queue::named(name) };
    if gpus > 0 {
        queue.guaranteed.insert(Resource::Gpus, gpus * 1_000);
    }
    queue.weight_milli = 1_000 * (1 + random.below(4));
    Ok(queue)
}

/// GPUs that are due to a team while everybody asks for more: its guarantee, and its part by weight of what is left above
/// all guarantees, first among the organisations and then inside of its own.
fn due(team: &Queue, tops: &[Queue], teams: &[Queue], gpus: u64) -> u64 {
    let left = gpus - tops.iter().map(guaranteed_gpus).sum::<u64>();
    let weight =
        |queues: &mut dyn Iterator<Item = &Queue>| -> u64 { queues.map(|queue| queue.weight_milli).sum() };
    let own = weight(&mut tops.iter().filter(|top| team.parent.as_ref() == Some(&top.name)));
    let of_org = left * own / weight(&mut tops.iter()).max(1);
    let siblings = weight(&mut teams.iter().filter(|other| other.parent == team.parent));
    guaranteed_gpus(team) + of_org * team.weight_milli / siblings.max(1)
}

pub(super) fn guaranteed_gpus(queue: &Queue) -> u64 {
    queue.guaranteed.get(&Resource::Gpus).copied().unwrap_or(0) / 1_000
}

/// A job of one gang.
pub(super) fn job(
    id: u64,
    gang: Gang,
    queue: &QueueName,
    class: &str,
    submitted_at: Timestamp,
    random: &mut Random,
) -> Result<Job, String> {
    let user = random.below(USERS);
    let number = u32::try_from(user).unwrap_or(0) + 1_000;
    let name = |e: phalanx_model::NameError| e.to_string();
    let (limit_ms, _) = TIME_LIMITS[weighted(TIME_LIMITS.iter().map(|(_, weight)| *weight), random)];
    let policy = Policy { time_limit_ms: (limit_ms > 0).then_some(limit_ms), ..Policy::default() };
    Ok(Job {
        id: JobId(id),
        name: JobName::new(format!("train-{}", random.below(5))).map_err(name)?,
        key: None,
        owner: Owner { uid: number, gid: number, name: format!("user-{user}") },
        queue: queue.clone(),
        priority: if random.below(10) == 0 { 10 } else { 0 },
        submitted_at,
        gangs: vec![gang],
        policy,
        turn: Turn { class: Some(ClassName::new(class).map_err(name)?), ..Turn::default() },
    })
}

pub(super) fn below(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.below(end as u64)).unwrap_or(0)
}

/// An index, as often as its weight says.
pub(super) fn weighted(weights: impl Iterator<Item = u64> + Clone, random: &mut Random) -> usize {
    let mut at = random.below(weights.clone().sum());
    let is_here = |weight: u64| {
        let here = at < weight;
        at = at.saturating_sub(weight);
        here
    };
    weights.into_iter().map(is_here).position(|here| here).unwrap_or(0)
}
