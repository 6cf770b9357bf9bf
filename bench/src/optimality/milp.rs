//! The same instances as mixed-integer programs, solved by `HiGHS`: one binary for each choice of each node, one for
//! each count of members in each domain, and one for each bandwidth that may be the slowest.
//!
//! A solver works with floats, so what it finds is rounded to a placement and judged in integers; it may be longer
//! than the best by [`TOLERANCE`], and is never shorter.

use highs::{Col, HighsModelStatus, RowProblem, Sense};
use phalanx_model::{DeviceMask, Gang};

use super::draw::{self, Cluster};
use super::hardware::{self, NO_LIMIT};
use super::objective;
use super::problem::{Best, Map, Problem, Sets, Toll};
use super::queue::{Total, weight};

/// Part of the time by which the solver's best may be longer than the best, plus a microsecond.
const TOLERANCE: f64 = 1e-6;
/// What is not solved by then is not compared.
const SECONDS_MAX: f64 = 60.0;

/// The columns of one gang.
struct Columns {
    /// 1 when the gang has a place.
    placed: Col,
    /// By node and choice; the idle choice has none.
    choices: Vec<Vec<Option<Col>>>,
}

/// Whether the times of placements are to be least, or only a place is wanted.
#[derive(Clone, Copy, PartialEq)]
enum Goal {
    Time,
    Place { worth: f64 },
}

/// What a column costs that takes so long.
fn cost(goal: Goal, ns: u64) -> f64 {
    if goal == Goal::Time { ns as f64 } else { 0.0 }
}

/// All rows of one gang. It must have a place, or may.
fn add_gang(model: &mut RowProblem, problem: &Problem<'_>, must: bool, goal: Goal) -> Columns {
    let rules = &problem.rules;
    let worth = if let Goal::Place { worth } = goal { -worth } else { 0.0 };
    let placed = model.add_integer_column(worth, f64::from(u8::from(must))..=1.0);
    let tolls = domain_tolls(problem);
    let of_domains = tolls.iter().flatten().map(|(_, toll)| toll.mb_per_s);
    let of_nodes = problem.choices.iter().flat_map(|node| node.iter()).map(|choice| choice.toll.mb_per_s);
    let mut limits: Vec<u64> = of_domains.chain(of_nodes).chain([NO_LIMIT]).collect();
    limits.sort_unstable();
    limits.dedup();
    let slowest: Vec<(u64, Col)> = limits
        .iter()
        .map(|limit| {
            let ns = rules.time_ns(Toll { ns: 0, mb_per_s: *limit });
            (*limit, model.add_integer_column(cost(goal, ns), 0.0..=1.0))
        })
        .collect();
    let one = slowest.iter().map(|(_, col)| (*col, 1.0)).chain([(placed, -1.0)]);
    model.add_row(0.0..=0.0, one);

    let mut rests: Vec<Vec<(Col, f64)>> = vec![Vec::new(); 8];
    let mut all: Vec<(Col, f64)> = vec![(placed, -f64::from(rules.members))];
    let mut choices = Vec::new();
    let node_depth = problem.map.homes.first().map_or(1, |home| home.len() + 1);
    for node in &problem.choices {
        let mut columns = Vec::new();
        let mut parts = Vec::new();
        for choice in node.iter() {
            let column =
                (choice.members > 0).then(|| model.add_integer_column(cost(goal, choice.toll.ns), 0.0..=1.0));
            columns.push(column);
            let Some(column) = column else { continue };
            all.push((column, f64::from(choice.members)));
            parts.push((column, choice.toll));
            note_rests(&mut rests, rules.rests(node_depth, choice.members), column);
        }
        add_part(model, placed, &slowest, &parts);
        choices.push(columns);
    }
    model.add_row(0.0..=0.0, all);
    for (domain, tolls) in problem.map.domains.iter().zip(&tolls) {
        let mut inside: Vec<(Col, f64)> = Vec::new();
        for node in domain.nodes.clone() {
            let columns = choices[node].iter().zip(problem.choices[node].iter());
            inside.extend(columns.filter_map(|(col, c)| Some(((*col)?, -f64::from(c.members)))));
        }
        let mut parts = Vec::new();
        for (members, toll) in tolls {
            let column = model.add_integer_column(cost(goal, toll.ns), 0.0..=1.0);
            inside.push((column, f64::from(*members)));
            parts.push((column, *toll));
            note_rests(&mut rests, rules.rests(domain.depth, *members), column);
        }
        model.add_row(0.0..=0.0, inside);
        add_part(model, placed, &slowest, &parts);
    }
    for rest in rests.into_iter().filter(|rest| !rest.is_empty()) {
        model.add_row(..=1.0, rest);
    }
    Columns { placed, choices }
}

/// For each domain the counts of members that are allowed, and what they add.
fn domain_tolls(problem: &Problem<'_>) -> Vec<Vec<(u32, Toll)>> {
    let most = |node: usize| problem.choices[node].iter().map(|choice| choice.members).max().unwrap_or(0);
    let of = |domain: &super::problem::Domain| {
        let room: u32 = domain.nodes.clone().map(most).sum();
        let counts = 1..=room.min(problem.rules.members);
        let allowed = counts.filter(|members| problem.rules.allow(domain.depth, *members));
        allowed.map(|members| (members, domain.toll(&problem.rules, members))).collect()
    };
    problem.map.domains.iter().map(of).collect()
}

fn note_rests(rests: &mut [Vec<(Col, f64)>], bits: u8, column: Col) {
    for (index, rest) in rests.iter_mut().enumerate() {
        if bits >> index & 1 == 1 {
            rest.push((column, 1.0));
        }
    }
}

/// At most one way to use a node or a domain, and none that is slower than what is said to be the slowest.
fn add_part(model: &mut RowProblem, placed: Col, slowest: &[(u64, Col)], parts: &[(Col, Toll)]) {
    let one = parts.iter().map(|(col, _)| (*col, 1.0)).chain([(placed, -1.0)]);
    model.add_row(..=0.0, one);
    let mut limits: Vec<u64> = parts.iter().map(|(_, toll)| toll.mb_per_s).collect();
    limits.sort_unstable();
    limits.dedup();
    for limit in limits.into_iter().filter(|limit| *limit != NO_LIMIT) {
        let slow = parts.iter().filter(|(_, toll)| toll.mb_per_s <= limit).map(|(col, _)| (*col, 1.0));
        let said = slowest.iter().filter(|(said, _)| *said <= limit).map(|(_, col)| (*col, -1.0));
        model.add_row(..=0.0, slow.chain(said));
    }
}

/// The values of all columns; none when there is no solution.
///
/// # Errors
/// When the solver does not finish.
fn solve(model: RowProblem) -> Result<Option<Vec<f64>>, HighsModelStatus> {
    let mut model = model.optimise(Sense::Minimise);
    model.make_quiet();
    model.set_option("threads", 1);
    model.set_option("mip_rel_gap", 0.0);
    model.set_option("mip_abs_gap", 0.0);
    model.set_option("mip_feasibility_tolerance", 1e-9);
    model.set_option("time_limit", SECONDS_MAX);
    let solved = model.solve();
    match solved.status() {
        HighsModelStatus::Optimal => Ok(Some(solved.get_solution().columns().to_vec())),
        HighsModelStatus::Infeasible | HighsModelStatus::UnboundedOrInfeasible => Ok(None),
        other => Err(other),
    }
}

/// The placement of one gang, judged in integers.
fn read(
    cluster: &Cluster,
    gang: &Gang,
    problem: &Problem<'_>,
    columns: &Columns,
    values: &[f64],
) -> Result<u64, String> {
    let is_one = |col: &Option<Col>| col.is_some_and(|col| values[col.index()] > 0.5);
    let chosen = columns.choices.iter().enumerate();
    let chosen = chosen.filter_map(|(node, cols)| Some((node, cols.iter().position(is_one)?)));
    let used = problem.used(chosen);
    objective::check(cluster, gang, &used).map_err(|why| format!("the solver's placement {why}"))?;
    Ok(objective::time_ns(cluster, gang, &used))
}

fn is_near(best: u64, found: u64) -> bool {
    found >= best && (found - best) as f64 <= (best as f64).mul_add(TOLERANCE, 1_000.0)
}

/// Whether the solver finished; its best is then that of the other methods.
///
/// # Errors
/// When it is not.
pub(super) fn agrees(
    cluster: &Cluster,
    gang: &Gang,
    problem: &Problem<'_>,
    best: Option<&Best>,
) -> Result<bool, String> {
    let mut model = RowProblem::new();
    let columns = add_gang(&mut model, problem, true, Goal::Time);
    let Ok(values) = solve(model) else { return Ok(false) };
    match (values, best) {
        (None, None) => Ok(true),
        (Some(_), None) => Err("the solver finds a place where there is none".to_owned()),
        (None, Some(_)) => Err("the solver finds no place where there is one".to_owned()),
        (Some(values), Some(best)) => {
            let ns = read(cluster, gang, problem, &columns, &values)?;
            if is_near(best.ns, ns) {
                return Ok(true);
            }
            Err(format!("the solver's best takes {ns} ns, the sweep's {} ns", best.ns))
        }
    }
}

/// The same for a queue: first the devices, then the time.
pub(super) fn queue_agrees(cluster: &Cluster, gangs: &[Gang], best: Total) -> Result<bool, String> {
    let map = Map::new(cluster)?;
    let problems: Vec<Problem<'_>> =
        gangs.iter().map(|gang| Problem::new(&map, cluster, gang, Sets::All)).collect();
    let (model, columns) = queue_model(cluster, gangs, &problems, None);
    let Ok(Some(values)) = solve(model) else { return Ok(false) };
    let placed = |values: &[f64], columns: &[Columns]| -> u64 {
        let placed = gangs.iter().zip(columns).filter(|(_, c)| values[c.placed.index()] > 0.5);
        placed.map(|(gang, _)| weight(gang)).sum()
    };
    let devices = placed(&values, &columns);
    if devices != best.devices {
        return Err(format!("the solver places {devices} devices, the search {}", best.devices));
    }
    let (model, columns) = queue_model(cluster, gangs, &problems, Some(devices));
    let Ok(Some(values)) = solve(model) else { return Ok(false) };
    let mut ns = 0;
    for ((gang, problem), columns) in gangs.iter().zip(&problems).zip(&columns) {
        if values[columns.placed.index()] > 0.5 {
            ns += read(cluster, gang, problem, columns, &values)?;
        }
    }
    if placed(&values, &columns) == devices && is_near(best.ns, ns) {
        return Ok(true);
    }
    Err(format!("the solver's best takes {ns} ns, that of the search {} ns", best.ns))
}

/// All gangs, and no device given twice. Least time with at least so many devices placed, or most devices.
fn queue_model(
    cluster: &Cluster,
    gangs: &[Gang],
    problems: &[Problem<'_>],
    devices: Option<u64>,
) -> (RowProblem, Vec<Columns>) {
    let mut model = RowProblem::new();
    let columns: Vec<Columns> = gangs
        .iter()
        .zip(problems)
        .map(|(gang, problem)| {
            let most = Goal::Place { worth: weight(gang) as f64 };
            add_gang(&mut model, problem, false, if devices.is_some() { Goal::Time } else { most })
        })
        .collect();
    if let Some(devices) = devices {
        let placed = gangs.iter().zip(&columns).map(|(gang, cols)| (cols.placed, weight(gang) as f64));
        model.add_row(devices as f64.., placed);
    }
    for (at, node) in cluster.nodes.iter().enumerate() {
        let free = draw::free(node);
        let taken: Vec<(Col, DeviceMask)> = problems
            .iter()
            .zip(&columns)
            .flat_map(|(problem, columns)| {
                let pairs = columns.choices[at].iter().zip(problem.choices[at].iter());
                pairs.filter_map(|(col, choice)| Some(((*col)?, choice.devices)))
            })
            .collect();
        // Of equal devices the choices name the first ones, and stand for as many of any.
        let is_uniform = cluster.table.shapes.get(&node.machine.shape).is_some_and(hardware::is_uniform);
        if is_uniform {
            let counts = taken.iter().map(|(col, devices)| (*col, f64::from(devices.count())));
            model.add_row(..=f64::from(free.count()), counts);
        } else {
            for device in free.iter() {
                let takers = taken.iter().filter(|(_, devices)| devices.contains(device));
                model.add_row(..=1.0, takers.map(|(col, _)| (*col, 1.0)));
            }
        }
    }
    (model, columns)
}
