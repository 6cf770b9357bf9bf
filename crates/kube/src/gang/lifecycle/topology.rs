//! What a gang's rules of topology are to the engine: of the gang as a whole, and of each role that has some of its own.

use std::collections::BTreeSet;

use phalanx_model::{LevelName, Segment, Spread, Topology};

use crate::cluster::nodes::DomainOf;
use crate::gang::Lifecycle;
use crate::gang::state::Seat;
use crate::recognise::{GangSpec, LevelRef, RoleSpec, SegmentRule, TopologyRule};

impl Lifecycle {
    /// The rules of a gang, without those of single roles. Its parts are of the members that need the same as the first. Domains
    /// of labels beside the levels are not among them, see [`super::label_domains`].
    ///
    /// # Errors
    /// Which of them the engine has no words for, and levels that this cluster does not have.
    pub(in crate::gang) fn topology(&self, spec: &GangSpec) -> Result<Topology, String> {
        let rule = rule_of(spec);
        let mut of_roles = spec.roles.iter().map(|role| &role.topology);
        let wait = spec.topology.wait.or_else(|| of_roles.find_map(|rule| rule.wait));
        let level = |asked: Option<&LevelRef>, field: &str| {
            let level = asked.map(|asked| self.cluster.nodes.domain_of(asked)).transpose();
            let level = level.map_err(|why| format!("{field} topology: {why}"))?;
            Ok::<_, String>(level.and_then(in_tree))
        };
        let topology = Topology {
            required: level(rule.required.as_ref(), "required")?,
            preferred: level(preferred_of(spec), "preferred")?,
            segments: self.segments(&rule.segments)?,
            spread: self.alone(spec)?.into_iter().collect(),
            ..Topology::default()
        };
        Ok(match wait {
            Some(wait) => wait.in_rules(topology),
            None => topology,
        })
    }

    /// The parts of a role with rules of its own, all of it among them where it has to be together. The members of a role
    /// are these seats, all that it has.
    ///
    /// # Errors
    /// Where not all of the role is one request, or a level is not there.
    pub(in crate::gang) fn segments_of(
        &self,
        role: &RoleSpec,
        seats: &[Seat],
        size: u32,
    ) -> Result<Vec<Segment>, String> {
        let whole = role.topology.required.as_ref().map(|level| SegmentRule {
            size,
            level: level.clone(),
            is_required: true,
            is_exclusive: false,
        });
        let rules: Vec<SegmentRule> =
            whole.into_iter().chain(role.topology.segments.iter().cloned()).collect();
        let segments = self.segments(&rules)?;
        let of_role = seats.iter().filter(|seat| seat.role.as_ref() == Some(&role.name)).count();
        if !segments.is_empty() && of_role != size as usize {
            return Err(format!(
                "not supported: pods of {} ask for different things, and have to be in domains together",
                role.name
            ));
        }
        Ok(segments)
    }

    /// Those that are required. Of several inside one level the first says it all: it is the widest.
    fn segments(&self, rules: &[SegmentRule]) -> Result<Vec<Segment>, String> {
        let mut segments: Vec<Segment> = Vec::new();
        for rule in rules.iter().filter(|rule| rule.is_required) {
            let level =
                self.cluster.nodes.domain_of(&rule.level).map_err(|why| format!("segments: {why}"))?;
            let Some(level) = in_tree(level) else { continue };
            if segments.iter().all(|segment| segment.level != level) {
                segments.push(Segment { size: rule.size, level });
            }
        }
        Ok(segments)
    }

    /// Parts that want a domain each for themselves: no domain has more members than the largest of them. Others of the gang
    /// may be in as many domains as that takes, and who else is there is left to the rules of the pods.
    fn alone(&self, spec: &GangSpec) -> Result<Option<Spread>, String> {
        let of_roles = spec.roles.iter().map(|role| (&role.topology, role.size));
        let mut sizes: Vec<u32> = Vec::new();
        let mut levels: BTreeSet<LevelName> = BTreeSet::new();
        for (rule, size) in of_roles.chain([(&spec.topology, spec.size())]) {
            for part in rule.segments.iter().filter(|part| part.is_exclusive) {
                let Some(level) = in_tree(self.cluster.nodes.domain_of(&part.level)?) else { continue };
                levels.insert(level);
                sizes.extend((0..size / part.size.max(1)).map(|_| part.size));
            }
        }
        sizes.sort_unstable();
        let Some(max) = sizes.last().copied() else { return Ok(None) };
        // Any two of them have to be too many for one domain.
        let least: u32 = sizes.iter().take(2).fold(0, |sum, size| sum.saturating_add(*size));
        if levels.len() > 1 || (sizes.len() > 1 && least <= max) {
            sizes.dedup();
            let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            let sizes = sizes.join(", ");
            return Err(format!("not supported: jobs of {sizes} pods, each in a domain for itself"));
        }
        Ok(levels.pop_first().map(|level| Spread { level, max }))
    }
}

/// The rule of a gang as a whole.
pub(in crate::gang) fn rule_of(spec: &GangSpec) -> &TopologyRule {
    match spec.roles.as_slice() {
        [only] if spec.topology.is_empty() => &only.topology,
        _ => &spec.topology,
    }
}

/// A wish of one role is met best where all of them are together.
pub(in crate::gang) fn preferred_of(spec: &GangSpec) -> Option<&LevelRef> {
    let mut of_roles = spec.roles.iter().map(|role| &role.topology);
    rule_of(spec).preferred.as_ref().or_else(|| of_roles.find_map(|rule| rule.preferred.as_ref()))
}

/// A level, which the engine minds.
fn in_tree(of: DomainOf) -> Option<LevelName> {
    match of {
        DomainOf::Level(level) => Some(level),
        DomainOf::Label(_) => None,
    }
}

#[cfg(test)]
mod tests;
