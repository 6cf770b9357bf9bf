//! What the tools of NICs print about their speed: `ibstat`, `ibstatus`, `ethtool`.

use std::collections::BTreeMap;

use phalanx_model::Machine;

use crate::gap::{Gap, listed};
use crate::topo_m::{NICS_MAX, text};

/// The largest text that is read. `ethtool` prints about 2 KiB for each interface.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Why nothing of a text is usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicTextError {
    #[error("the text is empty; give the output of `ibstat`, `ibstatus` or `ethtool`")]
    Empty,
    #[error("the text has {bytes} bytes, and at most {TEXT_BYTES_MAX} are read")]
    TooLarge { bytes: usize },
    #[error("no line of the text names a NIC; give the output of `ibstat`, `ibstatus` or `ethtool`")]
    NoNic,
    #[error("line {line}: more than {NICS_MAX} NICs in one machine are not supported")]
    TooManyNics { line: u32 },
}

/// The speeds of NICs by name, one way. Ports that are down carry nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicSpeeds {
    /// All active ports of a NIC together; 0 if none is active or the tool does not know.
    pub bytes_per_s: BTreeMap<String, u64>,
    pub gaps: Vec<Gap>,
}

/// The port that is being read.
#[derive(Default)]
struct Port {
    nic: String,
    is_active: bool,
    bytes_per_s: u64,
}

/// Reads the output of one of the tools, or several outputs one after another.
///
/// # Errors
/// When no line names a NIC, or the text is beyond the limits.
pub fn parse(text: &str) -> Result<NicSpeeds, NicTextError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(NicTextError::TooLarge { bytes: text.len() });
    }
    let text = text::clean(text);
    if text.trim().is_empty() {
        return Err(NicTextError::Empty);
    }
    let mut found = NicSpeeds::default();
    let mut port = Port::default();
    for (line, text) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(nic) = nic_of(text) {
            found.add(&port);
            port = Port::default();
            port.nic = text::shorten(nic);
            found.bytes_per_s.entry(port.nic.clone()).or_default();
            if found.bytes_per_s.len() > NICS_MAX {
                return Err(NicTextError::TooManyNics { line });
            }
            continue;
        }
        // A further port of `ibstat`.
        if text.starts_with("Port ") && text.ends_with(':') {
            let nic = port.nic.clone();
            found.add(&port);
            port = Port { nic, ..Port::default() };
            continue;
        }
        let Some((key, value)) = text.split_once(':') else { continue };
        let value = value.trim();
        match key.trim().to_ascii_lowercase().as_str() {
            "state" => port.is_active = value.to_ascii_uppercase().contains("ACTIVE"),
            "link detected" => port.is_active = value == "yes",
            "rate" | "speed" => match bytes_per_s(value) {
                Some(bytes) => port.bytes_per_s = bytes,
                // `Unknown!` of an interface that is down.
                None if value.starts_with("Unknown") => {}
                None => {
                    let what = format!("{:?} is no speed", text::shorten(value));
                    found.gaps.push(Gap::new((line, 0), what));
                }
            },
            _ => {}
        }
    }
    found.add(&port);
    if found.bytes_per_s.is_empty() {
        return Err(NicTextError::NoNic);
    }
    found.gaps = listed(found.gaps);
    Ok(found)
}

/// The NIC that a line begins to describe.
pub(crate) fn nic_of(line: &str) -> Option<&str> {
    if line.starts_with("CA '") || line.starts_with("Infiniband device '") {
        return line.split('\'').nth(1).filter(|nic| !nic.is_empty());
    }
    let nic = line.strip_prefix("Settings for ")?.strip_suffix(':')?;
    (!nic.is_empty() && !nic.contains(char::is_whitespace)).then_some(nic)
}

/// `400` and `400 Gb/sec (4X NDR)` are Gb/s, `100000Mb/s` is not.
fn bytes_per_s(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let tenths = whole.parse::<u64>().ok()?.checked_mul(10)?;
    let tenths =
        tenths.checked_add(part.chars().next().map_or(Some(0), |c| c.to_digit(10)).map(u64::from)?)?;
    let of_tenth = match unit.trim_start() {
        unit if unit.is_empty() || unit.starts_with("Gb") => 12_500_000,
        unit if unit.starts_with("Mb") => 12_500,
        _ => return None,
    };
    tenths.checked_mul(of_tenth)
}

impl NicSpeeds {
    fn add(&mut self, port: &Port) {
        if let Some(sum) = self.bytes_per_s.get_mut(&port.nic).filter(|_| port.is_active) {
            *sum = sum.saturating_add(port.bytes_per_s);
        }
    }

    /// Sets the speeds of the machine's NICs that no other source gives. Says which NICs the machine does not have.
    pub fn apply(&self, machine: &mut Machine) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for (name, bytes_per_s) in self.bytes_per_s.iter().filter(|(_, bytes)| **bytes > 0) {
            let is_it = |nic: &&mut phalanx_model::Nic| nic.name == *name || nic.alias.as_ref() == Some(name);
            match machine.nics.iter_mut().find(is_it) {
                Some(nic) if nic.bytes_per_s.is_none() || nic.is_assumed => {
                    (nic.bytes_per_s, nic.is_assumed) = (Some(*bytes_per_s), false);
                }
                Some(_) => {}
                None => gaps.push(Gap::new(
                    (0, 0),
                    format!("{name} is no NIC of the machine; its speed is not used"),
                )),
            }
        }
        phalanx_model::shape::rename(machine);
        gaps
    }
}
