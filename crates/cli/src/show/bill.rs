//! `bill`: device time by what it was for.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_account::State;
use phalanx_api::protocol::{BillBy, BillLine, BillView};
use phalanx_model::Timestamp;

use super::table::{Grid, cell, dim};
use super::{Page, clean, nothing};
use crate::failure::Failure;

const HOUR_US: i64 = 3_600_000_000;
const MILLION: i128 = 1_000_000;

/// When the charge of a line was, and the billing period it is in, each from a time to another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Period {
    pub(crate) charge: (String, String),
    pub(crate) billing: (String, String),
}

const fn is_overhead(state: State) -> bool {
    matches!(state, State::Starting | State::Stopping)
}

const fn is_lost(state: State) -> bool {
    matches!(state, State::LostToFailure | State::LostToPreemption)
}

/// A line for each group, and what part of the time was of use.
pub(crate) fn page(page: &Page, view: &BillView, since: Timestamp) -> String {
    if view.lines.is_empty() {
        return nothing(page, "nothing was charged");
    }
    let is_priced = is_priced(view);
    let has_state = view.by.contains(&BillBy::State);
    let headings: Vec<String> = view.by.iter().map(|by| by.word().to_uppercase()).collect();
    let mut headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    headings.push(">GPU-HOURS");
    let is_idle = |state| state == State::HeldIdle;
    let has_idle = !has_state && view.lines.iter().any(|line| line.sum(is_idle) != 0);
    if !has_state {
        headings.extend([">RUNNING", ">LOST", ">STARTS, STOPS", ">UNUSED"]);
    }
    if has_idle {
        headings.push(">HELD IDLE");
    }
    if is_priced {
        headings.push(">COST");
    }
    let mut grid = Grid::new(page, &headings);
    for line in &view.lines {
        let of = line.of.iter().map(|text| if text.is_empty() { dim("-") } else { cell(clean(text)) });
        let mut cells: Vec<_> = of.collect();
        cells.push(cell(hours(line.total_us())));
        if !has_state {
            let running = line.sum(|state| state == State::Running);
            let parts = [running, line.sum(is_lost), line.sum(is_overhead), line.sum(|s| !s.is_held())];
            cells.extend(parts.map(|us| if us == 0 { dim("-") } else { cell(hours(us)) }));
        }
        if has_idle {
            let us = line.sum(is_idle);
            cells.push(if us == 0 { dim("-") } else { cell(hours(us)) });
        }
        if is_priced {
            cells.push(cell(money(line.cost_micro)));
        }
        grid.row(cells);
    }
    let mut text = grid.render();
    if !page.quiet {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{}", summary(page, view, since).dimmed());
    }
    text
}

/// `from 2026-11-01 to 2026-11-21: 80 % of 100.00 GPU-hours were held by jobs, and 90 % of that was work that was not lost`.
fn summary(page: &Page, view: &BillView, since: Timestamp) -> String {
    let sum = |counts: fn(State) -> bool| view.lines.iter().map(|line| line.sum(counts)).sum::<i64>();
    let (all, held) = (sum(|_| true), sum(State::is_held));
    let useful = sum(|state| state == State::Running);
    let mut text = format!(
        "from {} to {}: {} of {} GPU-hours were held by jobs, and {} of that was work that was not lost",
        page.date(since),
        page.date(view.until),
        percent(held, all),
        hours(all),
        percent(useful, held)
    );
    if is_priced(view) {
        text += "; cost is by declared prices";
        let sum = |micro: fn(&BillLine) -> i64| view.lines.iter().map(micro).sum::<i64>();
        let (cost, list) = (sum(|line| line.cost_micro), sum(|line| line.list_cost_micro));
        if cost != list {
            text = format!("{text} and their multipliers ({} without)", money(list));
        }
    }
    text
}

/// One row for each line, with all states in hours of one device.
pub(crate) fn csv(view: &BillView) -> Result<String, Failure> {
    let states = State::ALL.map(|state| format!("{state}_gpu_hours"));
    let by = view.by.iter().map(|by| by.word());
    let headings: Vec<&str> = by
        .chain(["gpu_hours"])
        .chain(states.iter().map(String::as_str))
        .chain(["cost", "list_cost", "rates"])
        .collect();
    let rows = view.lines.iter().map(|line| {
        let states = State::ALL.map(|state| exact(line.device_us.get(&state).copied().unwrap_or_default()));
        let of = line.of.iter().map(|text| clean(text));
        let cost = decimal(line.cost_micro.into());
        let list_cost = decimal(line.list_cost_micro.into());
        of.chain([exact(line.total_us())]).chain(states).chain([cost, list_cost, rates(line)]).collect()
    });
    write(&headings, rows)
}

/// `class batch 0.5: 12.000000; hours 1.25: 3.000000`: hours of one device by the multipliers that applied.
fn rates(line: &BillLine) -> String {
    let rate = |(rule, us): (&String, &i64)| format!("{}: {}", clean(rule), exact(*us));
    line.rates.iter().map(rate).collect::<Vec<_>>().join("; ")
}

/// Columns of FOCUS 1.0 (focus.finops.org): those that it asks of every file, and those of resources and prices. A
/// queue is the sub-account, and a job the resource.
const FOCUS: [&str; 30] = [
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "SubAccountId",
    "Tags",
];

/// One row for each line, which is by day, queue, user, job, model, state, spot, price and list price.
pub(crate) fn focus(periods: &[Period], view: &BillView, currency: &str) -> Result<String, Failure> {
    let rows = view.lines.iter().zip(periods).map(|(line, period)| row_of_focus(line, period, currency));
    write(&FOCUS, rows)
}

fn row_of_focus(line: &BillLine, period: &Period, currency: &str) -> Vec<String> {
    let of = |at: usize| line.of.get(at).map_or_else(String::new, |text| clean(text));
    let (queue, user, job, model, state) = (of(1), of(2), of(3), of(4), of(5));
    let (number, name) = job.split_once(' ').unwrap_or_default();
    let cost = decimal(line.cost_micro.into());
    let quantity = exact(line.total_us());
    let list_cost = decimal(line.list_cost_micro.into());
    let list_price = of(8).parse().map_or_else(|_| String::new(), |micro: i128| decimal(micro));
    let is_spot = if of(6).is_empty() { "" } else { " on spot nodes" };
    let what = if model.is_empty() { "GPU" } else { model.as_str() };
    let tags = serde_json::json!({"user": user, "state": state});
    let resource = if number.is_empty() { "" } else { "job" };
    [
        &cost,
        "phalanx",
        "phalanx",
        currency,
        &period.billing.1,
        &period.billing.0,
        "Usage",
        "",
        &format!("{what}{is_spot}: {}", state.replace('_', " ")),
        &period.charge.1,
        &period.charge.0,
        &quantity,
        "GPU-Hours",
        &cost,
        &cost,
        "phalanx",
        &list_cost,
        &list_price,
        &quantity,
        "GPU-Hours",
        "phalanx",
        "phalanx",
        number,
        name,
        resource,
        "Compute",
        "GPU",
        &model,
        &queue,
        &tags.to_string(),
    ]
    .map(str::to_owned)
    .to_vec()
}

pub(super) fn write(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Result<String, Failure> {
    let failed = |error: csv::Error| Failure::usage(format!("the table cannot be written: {error}"), "");
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(headings).map_err(failed)?;
    for row in rows {
        writer.write_record(row).map_err(failed)?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(error.into_error().into()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Hours of one device, to a thousandth.
pub(super) fn hours(device_us: i64) -> String {
    fixed(i128::from(device_us) / (i128::from(HOUR_US) / 1_000), 3)
}

/// Hours of one device, to a millionth.
pub(super) fn exact(device_us: i64) -> String {
    decimal(i128::from(device_us) * MILLION / i128::from(HOUR_US))
}

/// An amount of millionths to a hundredth.
pub(super) fn money(micro: i64) -> String {
    fixed(i128::from(micro) / 10_000, 2)
}

/// An amount of millionths.
pub(super) fn decimal(micro: i128) -> String {
    fixed(micro, 6)
}

/// `12.000345` of 12,000,345 with 6 digits behind the point.
fn fixed(amount: i128, digits: u32) -> String {
    let (unit, width) = (10_u128.pow(digits), digits as usize);
    let sign = if amount < 0 { "-" } else { "" };
    let amount = amount.unsigned_abs();
    format!("{sign}{}.{:0width$}", amount / unit, amount % unit)
}

/// Whether something cost anything.
fn is_priced(view: &BillView) -> bool {
    view.lines.iter().any(|line| line.cost_micro != 0)
}

fn percent(part: i64, of: i64) -> String {
    if of == 0 {
        return "none".to_owned();
    }
    let tenths = i128::from(part) * 1_000 / i128::from(of);
    format!("{}.{} %", tenths / 10, tenths % 10)
}
