//! The middle of the best allocations: where an interior-point solver ends, as those do that Gavel and Shockwave use.
//!
//! Many allocations are equally fair when devices are left over, and a policy that follows one of them depends on which.
//! This is the barrier method (Fiacco and McCormick, 1968): with a growing weight on the aim, the logarithms of all that is
//! left below the limits are maximised by damped Newton steps. The steps need + - x / and the square root alone.

/// Jobs that are alike.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub count: f64,
    /// Devices of each.
    pub gpus: f64,
    /// By model of device, what all of its time there is worth.
    pub worth: Vec<f64>,
}

/// How far from the best the aim may end, of it.
const GAP: f64 = 1e-6;
/// The weight grows by this factor, as soon as a step is shorter than `NEAR`.
const GROWTH: f64 = 20.0;
const NEAR: f64 = 0.25;
/// Steps after which it stops where it is: a feasible point, if not the best.
const STEPS_MAX: usize = 400;

/// What is left below each limit at a point.
struct Slack {
    /// By kind: above the least worth, and of its time.
    worth: Vec<f64>,
    time: Vec<f64>,
    /// By model, of its devices.
    devices: Vec<f64>,
}

struct Point {
    /// By kind, by model: shares of the time of one job.
    share: Vec<Vec<f64>>,
    /// No job gets less.
    least: f64,
}

/// By kind, the share of its time on each model of device, of which there are `sizes`, such that the least that any job
/// gets is the greatest.
pub(crate) fn most_even(kinds: &[Kind], sizes: &[f64]) -> Vec<Vec<f64>> {
    let asked: f64 = kinds.iter().map(|kind| kind.count * kind.gpus).sum();
    let even: Vec<f64> =
        sizes.iter().map(|size| (1.0 / sizes.len() as f64).min(size / asked) / 2.0).collect();
    let got = |kind: &Kind| kind.worth.iter().zip(&even).map(|(worth, share)| worth * share).sum::<f64>();
    let least = kinds.iter().map(got).fold(f64::INFINITY, f64::min) / 2.0;
    let limits: f64 =
        kinds.iter().map(|kind| kind.count * (sizes.len() + 2) as f64).sum::<f64>() + sizes.len() as f64;
    let mut at = Point { share: vec![even; kinds.len()], least };
    let mut weight = limits / least;
    for _ in 0..STEPS_MAX {
        let length = at.advance(kinds, sizes, weight);
        if length < NEAR {
            if limits / weight < at.least * GAP {
                break;
            }
            weight *= GROWTH;
        }
    }
    at.share
}

impl Point {
    fn slack(&self, kinds: &[Kind], sizes: &[f64]) -> Slack {
        let worth = |(kind, share): (&Kind, &Vec<f64>)| dot(&kind.worth, share) - self.least;
        let used = |model: usize| -> f64 {
            kinds.iter().zip(&self.share).map(|(kind, share)| kind.count * kind.gpus * share[model]).sum()
        };
        Slack {
            worth: kinds.iter().zip(&self.share).map(worth).collect(),
            time: self.share.iter().map(|share| 1.0 - share.iter().sum::<f64>()).collect(),
            devices: sizes.iter().enumerate().map(|(model, size)| size - used(model)).collect(),
        }
    }

    /// One damped Newton step; its length in the measure of the barrier. Kinds meet only in the devices and in the least,
    /// so that each is solved for itself and then one system of the models and the least.
    fn advance(&mut self, kinds: &[Kind], sizes: &[f64], weight: f64) -> f64 {
        let models = sizes.len();
        let slack = self.slack(kinds, sizes);
        let mut joint = vec![vec![0.0; models + 2]; models + 1];
        for (model, left) in slack.devices.iter().enumerate() {
            joint[model][model] = left * left;
        }
        joint[models][models + 1] = weight;
        let mut solved: Vec<Vec<Vec<f64>>> = Vec::with_capacity(kinds.len());
        let mut gradients: Vec<Vec<f64>> = Vec::with_capacity(kinds.len());
        for (index, kind) in kinds.iter().enumerate() {
            let (n, above, time) = (kind.count, 1.0 / slack.worth[index], 1.0 / slack.time[index]);
            let share = &self.share[index];
            // One row for each model: the curvature, and then for the gradient, the devices of each model, and the least.
            let mut rows = vec![vec![0.0; models + models + 2]; models];
            let mut gradient = vec![0.0; models];
            for a in 0..models {
                let worth = kind.worth[a];
                let curvature = |other: &f64| n * (above * above * worth * other + time * time);
                rows[a].iter_mut().zip(&kind.worth).for_each(|(cell, other)| *cell = curvature(other));
                rows[a][a] += n / (share[a] * share[a]);
                gradient[a] = n * (above * worth - time + 1.0 / share[a]) - n * kind.gpus / slack.devices[a];
                rows[a][models] = gradient[a];
                rows[a][models + 1 + a] = n * kind.gpus;
                rows[a][models + models + 1] = -n * above * above * worth;
            }
            let inverse = solve(rows.clone(), models);
            for (a, row) in rows.iter().enumerate() {
                for column in 0..=models {
                    // What a change of this model's price, or of the least, does to this kind.
                    let of = inverse[a][1 + column];
                    let price = row[models + 1 + a];
                    joint[a][column] += price * of;
                    joint[models][column] -= row[models + models + 1] * of;
                }
                joint[a][models + 1] += row[models + 1 + a] * inverse[a][0];
                joint[models][models + 1] -= row[models + models + 1] * inverse[a][0];
            }
            joint[models][models] += n * above * above;
            joint[models][models + 1] -= n * above;
            solved.push(inverse);
            gradients.push(gradient);
        }
        let least_gradient =
            weight - kinds.iter().zip(&slack.worth).map(|(kind, left)| kind.count / left).sum::<f64>();
        let prices: Vec<f64> = solve(joint, models + 1).into_iter().map(|row| row[0]).collect();
        let step = |inverse: &Vec<Vec<f64>>| -> Vec<f64> {
            inverse.iter().map(|row| row[0] - dot(&row[1..], &prices)).collect()
        };
        let steps: Vec<Vec<f64>> = solved.iter().map(step).collect();
        let squared: f64 =
            gradients.iter().zip(&steps).map(|(gradient, step)| dot(gradient, step)).sum::<f64>()
                + least_gradient * prices[models];
        let length = squared.max(0.0).sqrt();
        let damp = 1.0 / (1.0 + length);
        for (share, step) in self.share.iter_mut().zip(&steps) {
            share.iter_mut().zip(step).for_each(|(share, step)| *share += damp * step);
        }
        self.least += damp * prices[models];
        length
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Gauss, with the largest of each column: the columns after the first `n` are what is solved for.
fn solve(mut rows: Vec<Vec<f64>>, n: usize) -> Vec<Vec<f64>> {
    for at in 0..n {
        let largest = (at..n).max_by(|a, b| rows[*a][at].abs().total_cmp(&rows[*b][at].abs())).unwrap_or(at);
        rows.swap(at, largest);
        let pivot = rows[at].clone();
        for (other, row) in rows.iter_mut().enumerate() {
            let times = row[at] / pivot[at];
            if other != at && times != 0.0 {
                row.iter_mut().zip(&pivot).skip(at).for_each(|(number, pivot)| *number -= times * pivot);
            }
        }
    }
    rows.into_iter()
        .enumerate()
        .map(|(at, row)| row[n..].iter().map(|number| number / row[at]).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Kind, most_even};

    fn kind(count: f64, gpus: f64, worth: &[f64]) -> Kind {
        Kind { count, gpus, worth: worth.to_vec() }
    }

    fn is_near(found: &[f64], wanted: &[f64]) -> bool {
        found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-3)
    }

    #[test]
    fn what_is_left_over_is_shared_out_evenly() {
        // Six jobs, and twelve devices of three models that are alike: each has all of its time, a third on each.
        let shares = most_even(&[kind(6.0, 1.0, &[1.0; 3])], &[4.0; 3]);
        assert!(is_near(&shares[0], &[1.0 / 3.0; 3]), "{shares:?}");
        // Twice as many jobs as devices: half of the time each.
        let shares = most_even(&[kind(8.0, 1.0, &[1.0; 2])], &[2.0; 2]);
        assert!(is_near(&shares[0], &[0.25; 2]), "{shares:?}");
    }

    #[test]
    fn the_least_is_the_greatest_that_can_be() {
        // One is three times as fast on the first device and the other as fast on both: each has one of its own.
        let kinds = [kind(1.0, 1.0, &[3.0, 1.0]), kind(1.0, 1.0, &[2.0, 2.0])];
        let shares = most_even(&kinds, &[1.0; 2]);
        assert!((shares[1].iter().sum::<f64>() - 1.0).abs() < 1e-3, "{shares:?}");
        assert!(3.0 * shares[0][0] + shares[0][1] > 2.0 - 1e-3, "{shares:?}");
        // A large job that has its least has some of what nobody needs.
        let kinds = [kind(1.0, 1.0, &[1.0]), kind(1.0, 4.0, &[4.0])];
        let shares = most_even(&kinds, &[8.0]);
        assert!(is_near(&shares[0], &[1.0]) && (0.3..1.0).contains(&shares[1][0]), "{shares:?}");
    }
}
