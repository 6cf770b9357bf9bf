//! How long requests wait: the M/M/c queue (Erlang, 1917; Kleinrock, Queueing Systems I, 1975, section 3.5). Requests come at
//! random, workers take them in turn, and each takes an exponential time.

/// What requests find in a steady state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// Mean of waiting and being served, in s.
    pub mean_s: f64,
    /// Share of requests that wait longer than the mean time that one takes to be served.
    pub late: f64,
}

/// With `per_s` requests a second and workers that do `rate` of them a second each. Nothing where there is no steady state,
/// for more comes than they can do.
#[must_use]
pub fn response(per_s: f64, workers: u32, rate: f64) -> Option<Response> {
    let (offered, workers_f) = (per_s / rate, f64::from(workers));
    if offered >= workers_f {
        return None;
    }
    // Erlang's B by its recursion, then his C: the chance that all are busy.
    let blocked = (1..=workers).fold(1.0, |b, worker| offered * b / (f64::from(worker) + offered * b));
    let busy = blocked / (1.0 - offered / workers_f * (1.0 - blocked));
    let spare = workers_f - offered;
    Some(Response { mean_s: (1.0 + busy / spare) / rate, late: busy * exp_of_minus(spare) })
}

/// e^-x for x of 0 or more, by + and × and ÷ alone: (1 - y + y²/2)^1024 with y = x / 1024.
fn exp_of_minus(x: f64) -> f64 {
    if x > 40.0 {
        return 0.0;
    }
    let y = x / 1_024.0;
    (0..10).fold(1.0 - y + y * y / 2.0, |power, _| power * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_those_of_the_tables() {
        // One worker, half busy: 1 / (mu - lambda); it waits longer than t with rho e^-(mu - lambda)t.
        let one = response(0.5, 1, 1.0).unwrap_or(Response { mean_s: 0.0, late: 0.0 });
        assert!(
            (one.mean_s - 2.0).abs() < 1e-12 && (one.late - 0.5 * (-0.5_f64).exp()).abs() < 1e-6,
            "{one:?}"
        );
        // Ten workers and 8 Erlang: C = 0.409 (Erlang's tables).
        let ten = response(8.0, 10, 1.0).unwrap_or(one);
        assert!(((ten.mean_s - 1.0) * 2.0 - 0.409).abs() < 5e-4, "{ten:?}");
        assert_eq!(response(10.0, 10, 1.0), None);
        assert_eq!(response(0.0, 10, 2.0), Some(Response { mean_s: 0.5, late: 0.0 }));
        for x in [0.0, 0.1, 1.0, 5.0, 20.0] {
            assert!((exp_of_minus(x) / (-x).exp() - 1.0).abs() < 2e-3, "{x}");
        }
    }
}
