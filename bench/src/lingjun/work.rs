//! Gangs that come and go.

use crate::peers::{Ask, Cluster, GPUS_PER_NODE, Rng};

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The gang with the next number.
    Arrives(Ask),
    /// The gang with this number ends, where it was placed.
    Ends(usize),
}

/// Three of four gangs have whole nodes, 8 to 512 GPUs, log-uniform; the others one to eight pods of 1, 2 or
/// 4 GPUs. As soon as all together would be above `fill` hundredths, gangs end at random, whoever placed
/// them.
pub(crate) fn draw(cluster: &Cluster, arrivals: usize, fill: u64, seed: u64) -> Vec<Event> {
    let mut rng = Rng(seed);
    let all = cluster.names.len() as u64 * u64::from(GPUS_PER_NODE);
    let mut events = Vec::new();
    let mut running: Vec<(usize, u64)> = Vec::new();
    let mut used = 0;
    for gang in 0..arrivals {
        let (pods, gpus) = if rng.below(4) < 3 {
            (rng.log_uniform(8, 512) / GPUS_PER_NODE, GPUS_PER_NODE)
        } else {
            (rng.log_uniform(1, 8), [1, 2, 4][rng.below(3)])
        };
        let ask = Ask { pods, gpus, required: None, preferred: Some(cluster.levels.len() - 1), slice: None };
        let asked = u64::from(pods * gpus);
        while (used + asked) * 100 > all * fill && !running.is_empty() {
            let (ended, freed) = running.swap_remove(rng.below(running.len()));
            events.push(Event::Ends(ended));
            used -= freed;
        }
        events.push(Event::Arrives(ask));
        running.push((gang, asked));
        used += asked;
    }
    events
}
