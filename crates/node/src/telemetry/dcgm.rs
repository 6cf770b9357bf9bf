//! Samples of NVIDIA's GPUs from a DCGM exporter, in place of NVIDIA's library.
//!
//! The exporter serves the text format of Prometheus. Of each GPU of this machine, told by its UUID, the values of [`FIELDS`] are
//! taken. A value that is not there is unknown. An exporter does not say that a GPU is lost, and has no state of single NVLinks.

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx_model::{RemappedRows, Throttle, Vitals};

/// The largest answer: a machine of 64 GPUs has some 500 KB.
const BYTES_MAX: u64 = 8 << 20;
/// An exporter answers from what it collected before.
const TIME_MAX: Duration = Duration::from_secs(5);
/// DCGM marks a value that it does not have by this one, or one a little greater.
const BLANK: u32 = 0x7fff_fff0;
/// A UUID or a name of a host that is kept.
const LABEL_MAX: usize = 256;

/// A value of the exporter goes into a sample.
type Put = fn(&mut Vitals, f64);

/// The metrics that are read, and whether each instance of a sliced GPU has its own value: that is not the value of the GPU. Of
/// names for the same value the last one that the exporter has counts.
const FIELDS: [(&str, bool, Put); 18] = [
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", true, |v, ratio| v.busy_percent = percent(ratio * 100.0)),
    ("DCGM_FI_DEV_GPU_UTIL", true, |v, share| v.busy_percent = percent(share)),
    ("DCGM_FI_DEV_FB_USED", true, |v, mib| v.memory_used_bytes = scaled(mib, 1_048_576.0)),
    ("DCGM_FI_DEV_GPU_TEMP", false, |v, celsius| v.temperature_c = small(celsius, 1.0)),
    ("DCGM_FI_DEV_POWER_USAGE", false, |v, watts| v.power_mw = small(watts, 1_000.0)),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", false, |v, mj| v.energy_mj = scaled(mj, 1.0)),
    ("DCGM_FI_DEV_SM_CLOCK", false, |v, mhz| v.sm_clock_mhz = small(mhz, 1.0)),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", false, |v, errors| v.ecc_corrected = scaled(errors, 1.0)),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", false, |v, errors| v.ecc_uncorrected = scaled(errors, 1.0)),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", false, |v, packets| v.pcie_replays = small(packets, 1.0)),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", false, |v, n| rows(v).correctable = small(n, 1.0)),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", false, |v, n| rows(v).uncorrectable = small(n, 1.0)),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", false, |v, is| rows(v).is_pending = flag(is)),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", false, |v, has| rows(v).has_failed = flag(has)),
    // Pages that wait, before Ampere.
    ("DCGM_FI_DEV_RETIRED_PENDING", false, |v, pages| v.is_retirement_pending = flag(pages)),
    ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", false, |v, bits| v.throttle = throttle(bits)),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", false, |v, bits| v.throttle = throttle(bits)),
    ("DCGM_FI_DEV_CLOCKS_EVENTS_REASONS", false, |v, bits| v.throttle = throttle(bits)),
];

/// Why an exporter cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    #[error("{0}: expected the address of a DCGM exporter, such as http://127.0.0.1:9400/metrics")]
    Url(String),
    #[error("the UUID of no GPU of this machine is known, and samples of a DCGM exporter are told by UUID")]
    NoUuids,
}

/// A DCGM exporter.
#[derive(Debug)]
pub(super) struct Exporter {
    agent: ureq::Agent,
    url: String,
    /// By device; empty where it is unknown.
    uuids: Vec<String>,
}

/// Whether this is an address of an exporter.
///
/// # Errors
/// [`ExporterError::Url`]
pub fn check_url(url: &str) -> Result<String, ExporterError> {
    let is_usable = url.parse::<ureq::http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    if is_usable { Ok(url.to_owned()) } else { Err(ExporterError::Url(url.to_owned())) }
}

impl Exporter {
    pub(super) fn new(url: &str, uuids: Vec<String>) -> Result<Self, ExporterError> {
        let url = check_url(url)?;
        if uuids.iter().all(String::is_empty) {
            return Err(ExporterError::NoUuids);
        }
        // Straight to the exporter: no proxy of the environment, and nowhere else.
        let config =
            ureq::Agent::config_builder().timeout_global(Some(TIME_MAX)).max_redirects(0).proxy(None);
        Ok(Self { agent: config.build().into(), url, uuids })
    }

    /// The address without what may be a password.
    pub(super) fn place(&self) -> &str {
        let after = self.url.split_once("://").map_or(self.url.as_str(), |(_, after)| after);
        let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
        authority.rsplit_once('@').map_or(authority, |(_, place)| place)
    }

    /// # Errors
    /// Why there is no sample of any GPU.
    pub(super) fn sample(&self) -> Result<Vec<(u32, Vitals)>, String> {
        let mut answer = self.agent.get(&self.url).call().map_err(|error| match error {
            ureq::Error::StatusCode(code) => format!("the DCGM exporter answered {code}"),
            error => format!("the DCGM exporter does not answer: {error}"),
        })?;
        if !answer.status().is_success() {
            return Err(format!("the DCGM exporter answered {}", answer.status().as_u16()));
        }
        let body = answer.body_mut().with_config().limit(BYTES_MAX).lossy_utf8(true).read_to_string();
        let text = body.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => {
                format!("the answer of the DCGM exporter has more than {BYTES_MAX} bytes")
            }
            error => format!("the DCGM exporter does not answer: {error}"),
        })?;
        samples(&text, &self.uuids)
    }
}

/// The samples of these GPUs.
fn samples(text: &str, uuids: &[String]) -> Result<Vec<(u32, Vitals)>, String> {
    let devices: BTreeMap<&str, u32> =
        uuids.iter().map(String::as_str).zip(0..).filter(|(uuid, _)| !uuid.is_empty()).collect();
    // By device and place in the table.
    let mut values: BTreeMap<u32, BTreeMap<usize, f64>> = BTreeMap::new();
    let mut other_host = None;
    let mut is_dcgm = false;
    for line in text.lines() {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let known = FIELDS.iter().zip(0..).find(|((known, ..), _)| *known == name);
        let Some(((_, is_of_instance, _), at)) = known else { continue };
        let Some(series) = Series::read(line) else { continue };
        is_dcgm = true;
        let Some(device) = devices.get(series.uuid.as_str()) else {
            other_host = other_host.or(Some(series.host));
            continue;
        };
        if series.is_instance && *is_of_instance {
            continue;
        }
        if series.value.is_finite() && series.value >= 0.0 {
            values.entry(*device).or_default().insert(at, series.value);
        } else {
            values.entry(*device).or_default();
        }
    }
    if !is_dcgm {
        return Err("the answer is not of a DCGM exporter".to_owned());
    }
    if values.is_empty() {
        let host = other_host.filter(|host| !host.is_empty());
        let host = host.map_or_else(String::new, |host| format!("; it has those of {host}"));
        return Err(format!("the DCGM exporter has no GPU of this machine{host}"));
    }
    let sample = |(device, of): (u32, BTreeMap<usize, f64>)| {
        let mut vitals = Vitals::default();
        for ((_, _, put), at) in FIELDS.iter().zip(0..) {
            if let Some(value) = of.get(&at) {
                put(&mut vitals, *value);
            }
        }
        // A GPU that remaps rows retires no pages.
        if vitals.rows.is_some() {
            vitals.is_retirement_pending = None;
        }
        (device, vitals)
    };
    Ok(values.into_iter().map(sample).collect())
}

/// One line of the text.
struct Series {
    uuid: String,
    host: String,
    /// Of one MIG instance.
    is_instance: bool,
    value: f64,
}

impl Series {
    /// `NAME{LABEL="VALUE",…} NUMBER [TIME]`; nothing of a line that is not so.
    fn read(line: &str) -> Option<Self> {
        let mut rest = line.split_once('{')?.1;
        let (mut uuid, mut host, mut is_instance) = (String::new(), String::new(), false);
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                let value = after.split_whitespace().next()?.parse().ok()?;
                return Some(Self { uuid, host, is_instance, value });
            }
            let (label, after) = rest.split_once('=')?;
            let value;
            (value, rest) = quoted(after.trim_start())?;
            // `Hostname` of older exporters, `hostname` of newer ones.
            match label.trim() {
                "UUID" | "uuid" => uuid = value,
                "Hostname" | "hostname" => host = value,
                "GPU_I_ID" => is_instance = !value.is_empty(),
                _ => {}
            }
        }
    }
}

/// The text in quotes at the begin, at most [`LABEL_MAX`] bytes of it, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut is_escaped = false;
    for (at, c) in inner.char_indices() {
        let c = match (is_escaped, c) {
            (false, '"') => return Some((value, inner.get(at + 1..)?)),
            (false, '\\') => {
                is_escaped = true;
                continue;
            }
            (true, 'n') => '\n',
            (_, c) => c,
        };
        is_escaped = false;
        if value.len() < LABEL_MAX {
            value.push(c);
        }
    }
    None
}

fn percent(share: f64) -> Option<u32> {
    small(share, 1.0).filter(|percent| *percent <= 100)
}

/// Values are doubles, and the target's range bounds them.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
fn scaled(value: f64, by: f64) -> Option<u64> {
    let value = (value * by).round();
    // 2^63: DCGM marks values that it does not have by the largest ones.
    (value < 9_223_372_036_854_775_808.0).then_some(value as u64)
}

fn small(value: f64, by: f64) -> Option<u32> {
    scaled(value, by).and_then(|value| u32::try_from(value).ok()).filter(|value| *value < BLANK)
}

fn flag(value: f64) -> Option<bool> {
    Some(value > 0.0)
}

fn rows(vitals: &mut Vitals) -> &mut RemappedRows {
    vitals.rows.get_or_insert_default()
}

/// The bits of NVML.
fn throttle(bits: f64) -> Option<Throttle> {
    let bits = scaled(bits, 1.0)?;
    let has = |bit: u64| bits & bit != 0;
    Some(Throttle { is_hardware: has(0x8), is_warm: has(0x20), is_hot: has(0x40), is_power_brake: has(0x80) })
}

#[cfg(test)]
mod tests;
