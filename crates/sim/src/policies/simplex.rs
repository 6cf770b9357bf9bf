//! The simplex method on a dense table, for the few dozen variables that a policy has.

/// Below this a number counts as 0.
const NOTHING: f64 = 1e-9;
/// Pivots after which it stops where it is: a feasible point, if not the best.
const PIVOTS_MAX: usize = 20_000;

/// Maximises `c x` where `rows x <= limits` and `x >= 0`; limits are not negative, so 0 is a solution.
pub(crate) fn maximize(c: &[f64], rows: &[Vec<f64>], limits: &[f64]) -> Vec<f64> {
    let (n, m) = (c.len(), rows.len());
    let width = n + m + 1;
    let mut table: Vec<Vec<f64>> = Vec::with_capacity(m + 1);
    for (at, (row, limit)) in rows.iter().zip(limits).enumerate() {
        let mut line = row.clone();
        line.resize(width, 0.0);
        line[n + at] = 1.0;
        line[width - 1] = limit.max(0.0);
        table.push(line);
    }
    let mut costs: Vec<f64> = c.iter().map(|c| -c).collect();
    costs.resize(width, 0.0);
    table.push(costs);
    let mut basis: Vec<usize> = (n..n + m).collect();
    for pivots in 0..PIVOTS_MAX {
        let Some(enters) = entering(&table[m][..width - 1], pivots) else { break };
        let ratio = |row: &usize| table[*row][width - 1] / table[*row][enters];
        let bounding = (0..m).filter(|row| table[*row][enters] > NOTHING);
        // Of equal ratios the least variable (Bland, 1977), so that it does not go in circles.
        let leaves = bounding.min_by(|a, b| ratio(a).total_cmp(&ratio(b)).then(basis[*a].cmp(&basis[*b])));
        let Some(leaves) = leaves else { break };
        pivot(&mut table, leaves, enters);
        basis[leaves] = enters;
    }
    let mut x = vec![0.0; n];
    for (row, variable) in basis.into_iter().enumerate() {
        if let Some(x) = x.get_mut(variable) {
            *x = table[row][width - 1];
        }
    }
    x
}

/// The steepest variable at first, and the first that betters anything once that took long (Bland).
fn entering(costs: &[f64], pivots: usize) -> Option<usize> {
    let betters = || costs.iter().enumerate().filter(|(_, cost)| **cost < -NOTHING);
    let steepest = || betters().min_by(|(_, a), (_, b)| a.total_cmp(b));
    let found = if pivots < 500 { steepest() } else { betters().next() };
    found.map(|(at, _)| at)
}

fn pivot(table: &mut [Vec<f64>], leaves: usize, enters: usize) {
    let by = table[leaves][enters];
    table[leaves].iter_mut().for_each(|number| *number /= by);
    // Most of the table is 0.
    let filled = table[leaves].iter().copied().enumerate().filter(|(_, number)| *number != 0.0);
    let line: Vec<(usize, f64)> = filled.collect();
    for (_, row) in table.iter_mut().enumerate().filter(|(at, _)| *at != leaves) {
        let times = row[enters];
        if times != 0.0 {
            line.iter().for_each(|(at, other)| row[*at] -= times * other);
            row[enters] = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::maximize;

    #[test]
    fn finds_the_corner() {
        // Dantzig's: 3x + 5y where x <= 4, 2y <= 12, 3x + 2y <= 18.
        let rows = [vec![1.0, 0.0], vec![0.0, 2.0], vec![3.0, 2.0]];
        let x = maximize(&[3.0, 5.0], &rows, &[4.0, 12.0, 18.0]);
        assert!((x[0] - 2.0).abs() < 1e-9 && (x[1] - 6.0).abs() < 1e-9, "{x:?}");
    }

    #[test]
    fn goes_in_no_circle() {
        // Beale's: the steepest choice alone cycles on it.
        let rows = [vec![0.25, -60.0, -0.04, 9.0], vec![0.5, -90.0, -0.02, 3.0], vec![0.0, 0.0, 1.0, 0.0]];
        let x = maximize(&[0.75, -150.0, 0.02, -6.0], &rows, &[0.0, 0.0, 1.0]);
        let best = 0.75 * x[0] - 150.0 * x[1] + 0.02 * x[2] - 6.0 * x[3];
        assert!((best - 0.05).abs() < 1e-9, "{x:?}");
    }
}
