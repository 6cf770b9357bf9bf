//! Where spans go, as the flag or OpenTelemetry's environment variables say. Headers, compression and the limits of spans
//! are read from the environment by the libraries.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::Uri;
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT as ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL as PROTOCOL,
    OTEL_EXPORTER_OTLP_TIMEOUT as TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT as TIMEOUT_DEFAULT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT as TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL as TRACES_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_TIMEOUT as TRACES_TIMEOUT,
};
use opentelemetry_sdk::trace::{OTEL_BSP_EXPORT_TIMEOUT as EXPORT_TIMEOUT, OTEL_BSP_MAX_QUEUE_SIZE as QUEUE};

const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const TRACES_CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const DISABLED: &str = "OTEL_SDK_DISABLED";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
const FLAG: &str = "--otlp-endpoint";

/// What OTLP's standard adds to an endpoint for all signals.
const PATH: &str = "/v1/traces";

/// For what is left to send when the process ends: with [the last calls](crate::world) less than its pod is given to end in.
const FAREWELL_DEFAULT: Duration = Duration::from_secs(2);

/// Spans that wait to be sent.
const QUEUE_DEFAULT: usize = 2_048;
const QUEUE_MAX: usize = 65_536;

/// A collector, and how it is spoken to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The whole URL.
    pub(super) endpoint: String,
    /// For one batch, with all tries.
    pub(super) timeout: Duration,
    /// For what is left to send when the process ends.
    pub(super) farewell: Duration,
    /// Spans that may wait for it.
    pub(super) queue: usize,
    /// Of the authorities that the collector's certificate is trusted by, where these are not the well-known ones.
    pub(super) certificates: Option<PathBuf>,
}

impl Target {
    /// Nothing where nobody names a collector, or traces are switched off.
    pub(super) fn chosen(
        flag: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let said = |name: &str| variable(name).filter(|value| !value.is_empty());
        if said(DISABLED).is_some_and(|is| is.eq_ignore_ascii_case("true"))
            || said(EXPORTER).is_some_and(|exporter| exporter == "none")
        {
            return Ok(None);
        }
        let whole = |base: &str| format!("{}{PATH}", base.trim_end_matches('/'));
        let (by, endpoint) = match (flag, said(TRACES_ENDPOINT), said(ENDPOINT)) {
            (Some(base), ..) => (FLAG, whole(base)),
            (_, Some(endpoint), _) => (TRACES_ENDPOINT, endpoint),
            (.., Some(base)) => (ENDPOINT, whole(&base)),
            _ => return Ok(None),
        };
        let is_url = endpoint.parse::<Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        });
        if !is_url {
            return Err(format!("{by}: {endpoint:?} is no URL; write one like http://collector:4318"));
        }
        if let Some((name, protocol)) = first(&said, [TRACES_PROTOCOL, PROTOCOL])
            && protocol != "http/protobuf"
        {
            return Err(format!("{name}: {protocol:?} is not spoken here; write http/protobuf"));
        }
        check_sampler(&said)?;
        let timeout = match first(&said, [TRACES_TIMEOUT, TIMEOUT]) {
            Some((name, text)) => Duration::from_millis(number(name, &text, 1, 600_000)?),
            None => TIMEOUT_DEFAULT,
        };
        let farewell = match said(EXPORT_TIMEOUT) {
            Some(text) => Duration::from_millis(number(EXPORT_TIMEOUT, &text, 0, 600_000)?),
            None => FAREWELL_DEFAULT,
        };
        let queue = match said(QUEUE) {
            Some(text) => number(QUEUE, &text, 1, QUEUE_MAX)?,
            None => QUEUE_DEFAULT,
        };
        let certificates = first(&said, [TRACES_CERTIFICATE, CERTIFICATE]).map(|(_, path)| path.into());
        Ok(Some(Self { endpoint, timeout, farewell, queue, certificates }))
    }
}

/// What the library does not know it would pass over in silence.
fn check_sampler(said: &impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let Some(sampler) = said(SAMPLER) else { return Ok(()) };
    let plain = sampler.strip_prefix("parentbased_").unwrap_or(&sampler);
    match plain {
        "always_on" | "always_off" => Ok(()),
        "traceidratio" => match said(SAMPLER_ARGUMENT).map(|text| text.parse::<f64>()) {
            Some(Ok(part)) if (0.0..=1.0).contains(&part) => Ok(()),
            _ => Err(format!("{SAMPLER_ARGUMENT}: {sampler} needs a number from 0 to 1")),
        },
        _ => Err(format!(
            "{SAMPLER}: {sampler:?} is not known; write always_on, always_off, traceidratio, or one of these behind parentbased_"
        )),
    }
}

/// The first of these that is set.
fn first(said: &impl Fn(&str) -> Option<String>, names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, said(name)?)))
}

fn number<N: Copy + FromStr + PartialOrd + std::fmt::Display>(
    name: &str,
    text: &str,
    least: N,
    most: N,
) -> Result<N, String> {
    let read = text.parse().ok().filter(|number| (&least..=&most).contains(&number));
    read.ok_or_else(|| format!("{name}: {text:?} is not a number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(flag: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<Target>, String> {
        Target::chosen(flag, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn endpoint(flag: Option<&str>, variables: &[(&str, &str)]) -> Option<String> {
        chosen(flag, variables).unwrap().map(|target| target.endpoint)
    }

    #[test]
    fn nothing_is_traced_unless_a_collector_is_named() {
        assert_eq!(chosen(None, &[]), Ok(None));
        assert_eq!(chosen(None, &[(ENDPOINT, ""), (TRACES_ENDPOINT, ""), (TIMEOUT, "5")]), Ok(None));
        let base = (ENDPOINT, "http://c:4318");
        assert_eq!(chosen(None, &[base, (DISABLED, "TRUE")]), Ok(None));
        assert_eq!(chosen(Some("http://c:4318"), &[(EXPORTER, "none")]), Ok(None));
    }

    #[test]
    fn the_flag_goes_before_the_endpoint_of_traces_and_that_before_the_one_of_all_signals() {
        let all = (ENDPOINT, "http://all:4318/");
        let traces = (TRACES_ENDPOINT, "http://traces/as/it/is");
        assert_eq!(endpoint(None, &[all]).as_deref(), Some("http://all:4318/v1/traces"));
        assert_eq!(endpoint(None, &[all, traces]).as_deref(), Some("http://traces/as/it/is"));
        let flagged = endpoint(Some("https://flag/base"), &[all, traces]);
        assert_eq!(flagged.as_deref(), Some("https://flag/base/v1/traces"));
    }

    #[test]
    fn limits_are_read_in_their_units_and_have_defaults() {
        let base = (ENDPOINT, "http://c:4318");
        let plain = chosen(None, &[base]).unwrap().unwrap();
        let farewell = Duration::from_secs(2);
        assert_eq!((plain.timeout, plain.farewell, plain.queue), (Duration::from_secs(10), farewell, 2_048));
        let set = [
            base,
            (TIMEOUT, "9000"),
            (TRACES_TIMEOUT, "250"),
            (EXPORT_TIMEOUT, "30000"),
            (QUEUE, "16"),
            (CERTIFICATE, "/ca.pem"),
        ];
        let set = chosen(None, &set).unwrap().unwrap();
        let farewell = Duration::from_secs(30);
        assert_eq!((set.timeout, set.farewell, set.queue), (Duration::from_millis(250), farewell, 16));
        assert_eq!(set.certificates, Some("/ca.pem".into()));
    }

    #[test]
    fn what_cannot_be_followed_is_an_error_that_names_its_place() {
        let base = (ENDPOINT, "http://c:4318");
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[(ENDPOINT, "collector:4318")], ENDPOINT),
            (&[(TRACES_ENDPOINT, "ftp://c")], TRACES_ENDPOINT),
            (&[base, (PROTOCOL, "grpc")], PROTOCOL),
            (&[base, (TRACES_PROTOCOL, "http/json"), (PROTOCOL, "http/protobuf")], TRACES_PROTOCOL),
            (&[base, (TIMEOUT, "10s")], TIMEOUT),
            (&[base, (TIMEOUT, "0")], TIMEOUT),
            (&[base, (QUEUE, "1000000")], QUEUE),
            (&[base, (SAMPLER, "sometimes")], SAMPLER),
            (&[base, (SAMPLER, "traceidratio"), (SAMPLER_ARGUMENT, "2")], SAMPLER_ARGUMENT),
            (&[base, (SAMPLER, "parentbased_traceidratio")], SAMPLER_ARGUMENT),
        ];
        for (variables, place) in cases {
            let error = chosen(None, variables).unwrap_err();
            assert!(error.starts_with(&format!("{place}: ")), "{variables:?}: {error}");
        }
        assert!(chosen(Some("c:4318"), &[]).unwrap_err().starts_with(FLAG));
        let sampled = [base, (SAMPLER, "parentbased_traceidratio"), (SAMPLER_ARGUMENT, "0.25")];
        assert!(chosen(None, &sampled).unwrap().is_some());
    }
}
