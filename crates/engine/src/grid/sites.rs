//! The positions of the ranks of a gang: sites, and the domains around them.

use phalanx_model::CollectiveCost;

use super::{GridError, RANKS_MAX, Seat};

/// The most levels of domains above a site.
const LEVELS_MAX: u32 = 16;
/// The most domains, and the most sites: each holds a rank.
const DOMAINS_MAX: u32 = RANKS_MAX;

/// A domain above the sites, such as a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Index of the domain around it, which comes before it; `None` if nothing around it limits.
    pub parent: Option<u32>,
    /// The bandwidth out of the domain, one way; 0 if nothing limits it.
    pub uplink_mb_per_s: u32,
    /// The latency of a hop through its uplink.
    pub latency_ns: u32,
}

/// Devices of the gang that are joined without NICs: those of a node, or of an NVLink domain of several
/// nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Index of the domain around it.
    pub parent: Option<u32>,
    pub ranks: u32,
    /// The bandwidth of its NICs for these ranks together, one way; 0 if nothing limits it.
    pub nic_mb_per_s: u32,
    pub latency_ns: u32,
    /// The bandwidth of one rank to the others of the site, one way; 0 if nothing limits it.
    pub inside_mb_per_s: u32,
}

/// Sites in topology order, and the domains around them, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites {
    sites: Vec<Site>,
    /// Of every cut: 0 is everything, then the domains, then the sites. Parents come before children.
    pub(super) cuts: Vec<Cut>,
    /// The cut of the first site.
    first: u32,
    ranks: u32,
    pub(super) collectives: CollectiveCost,
}

/// The way out of a domain or a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) parent: u32,
    pub(super) mb_per_s: u32,
    pub(super) latency_ns: u32,
}

impl Sites {
    /// # Errors
    /// When a domain does not come after the one around it, a site names a domain that is not there, or there
    /// are more of them, or more ranks, than the limits.
    pub fn new(domains: &[Domain], sites: &[Site]) -> Result<Self, GridError> {
        let count = |length: usize, what| match u32::try_from(length) {
            Ok(count) if count <= DOMAINS_MAX => Ok(count),
            _ => Err(GridError::TooMany { what, max: DOMAINS_MAX }),
        };
        let domain_count = count(domains.len(), "domains")?;
        count(sites.len(), "sites")?;
        let mut cuts = vec![Cut { parent: 0, mb_per_s: 0, latency_ns: 0 }];
        let mut depths = vec![0_u32];
        for (index, domain) in (0..).zip(domains) {
            let parent = domain.parent.map_or(0, |parent| parent.saturating_add(1));
            if parent > index {
                return Err(GridError::Parent(index));
            }
            let depth = depths.get(parent as usize).map_or(1, |depth| depth + 1);
            if depth > LEVELS_MAX {
                return Err(GridError::TooMany { what: "levels", max: LEVELS_MAX });
            }
            depths.push(depth);
            cuts.push(Cut { parent, mb_per_s: domain.uplink_mb_per_s, latency_ns: domain.latency_ns });
        }
        let mut ranks = 0_u32;
        for (index, site) in (0..).zip(sites) {
            let parent = site.parent.map_or(0, |parent| parent.saturating_add(1));
            if parent > domain_count {
                return Err(GridError::NoDomain(index));
            }
            ranks = ranks
                .checked_add(site.ranks)
                .filter(|ranks| *ranks <= RANKS_MAX)
                .ok_or(GridError::TooMany { what: "ranks", max: RANKS_MAX })?;
            cuts.push(Cut { parent, mb_per_s: site.nic_mb_per_s, latency_ns: site.latency_ns });
        }
        let collectives = CollectiveCost::default();
        Ok(Self { sites: sites.to_vec(), cuts, first: domain_count + 1, ranks, collectives })
    }

    /// With the constants of a calibrated site.
    #[must_use]
    pub const fn with_collectives(mut self, collectives: CollectiveCost) -> Self {
        self.collectives = collectives;
        self
    }

    #[must_use]
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Ranks that the sites hold together.
    #[must_use]
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The cut of the first site; those before it are domains.
    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn parent(&self, cut: u32) -> u32 {
        self.cuts.get(cut as usize).map_or(0, |cut| cut.parent)
    }

    /// The cut of the site of each place: places are blocks of `together` ranks, site by site.
    pub(super) fn homes(&self, together: u32) -> Vec<u32> {
        let mut homes = Vec::with_capacity((self.ranks / together) as usize);
        for (cut, site) in (self.first..).zip(&self.sites) {
            homes.extend((0..site.ranks / together).map(|_| cut));
        }
        homes
    }

    /// The seat of each rank, when block b of `together` ranks takes place `seated[b]`.
    pub(super) fn seats(&self, seated: &[u32], together: u32) -> Vec<Seat> {
        let all: Vec<Seat> = (0..)
            .zip(&self.sites)
            .flat_map(|(site, held)| (0..held.ranks).map(move |index| Seat { site, index }))
            .collect();
        let ranks = seated.iter().flat_map(|place| (0..together).map(move |rank| place * together + rank));
        ranks.filter_map(|place| all.get(place as usize).copied()).collect()
    }

    /// The place of each seat; every place is taken once.
    pub(super) fn places(&self, seats: &[Seat]) -> Result<Vec<u32>, GridError> {
        let mut starts = Vec::with_capacity(self.sites.len());
        let mut next = 0;
        for site in &self.sites {
            starts.push(next);
            next += site.ranks;
        }
        let mut is_taken = vec![false; self.ranks as usize];
        let place = |(rank, seat): (u32, &Seat)| {
            let site = self.sites.get(seat.site as usize).filter(|site| seat.index < site.ranks);
            let start = starts.get(seat.site as usize).filter(|_| site.is_some());
            let place = start.map(|start| start + seat.index).ok_or(GridError::Seat(rank))?;
            match is_taken.get_mut(place as usize) {
                Some(taken) if !*taken => *taken = true,
                _ => return Err(GridError::Seat(rank)),
            }
            Ok(place)
        };
        (0..).zip(seats).map(place).collect()
    }

    /// Calls `at` with every cut that a hop from one cut to another passes: `true` for a cut that it leaves, `false`
    /// for one that it enters. Parents have lower numbers, so climbing from the higher one ends at the common parent.
    pub(super) fn walk(&self, from: u32, to: u32, mut at: impl FnMut(u32, bool)) {
        let (mut from, mut to) = (from, to);
        while from != to {
            if from > to {
                at(from, true);
                from = self.parent(from);
            } else {
                at(to, false);
                to = self.parent(to);
            }
        }
    }
}
