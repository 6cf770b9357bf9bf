//! Mean completion over best-fit as a picture: a row for each policy, a dot for each setting, a bar at their geometric mean.

use std::fmt::Write;

use super::{Figures, best_fit};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 170.0;
const TOP: f64 = 56.0;
/// Width of the plot, and height of a row.
const PLOT: f64 = 560.0;
const ROW: f64 = 34.0;
/// The axis is logarithmic and ends here; what lies beyond is drawn at its end.
const FROM: f64 = 0.125;
const TO: f64 = 8.0;
const TICKS: [f64; 7] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

/// All worlds, each with the same policies in the same order.
pub(super) fn draw(all: &[Vec<Figures>]) -> String {
    let policies: Vec<&str> = all.first().into_iter().flatten().map(|of| of.policy.as_str()).collect();
    let bottom = TOP + ROW * policies.len() as f64;
    let height = bottom + 44.0;
    let x = |ratio: f64| LEFT + ((ratio / FROM).log2() / (TO / FROM).log2()).clamp(0.0, 1.0) * PLOT;
    // Writing to a string does not fail.
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">
<title>Mean completion over best-fit when the cluster is full</title>
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
<text x="16" y="22" font-size="15">Mean completion over best-fit, {} settings, no time limits (simulated)</text>
<text x="16" y="40" fill="#555555">filled: presets were chosen on these; open: kept back; bar: geometric mean</text>
"##,
        all.len()
    );
    for tick in TICKS {
        let stroke = if tick == 1.0 { "#888888" } else { "#dddddd" };
        let _ = writeln!(
            svg,
            r##"<path d="M{0:.1} {TOP}V{bottom}" stroke="{stroke}"/><text x="{0:.1}" y="{1}" text-anchor="middle">{tick}</text>"##,
            x(tick),
            bottom + 18.0
        );
    }
    let _ = writeln!(
        svg,
        r#"<text x="{}" y="{}" text-anchor="middle">times best-fit; less is sooner</text>"#,
        LEFT + PLOT / 2.0,
        bottom + 36.0
    );
    for (at, policy) in policies.into_iter().enumerate() {
        let y = TOP + ROW * (at as f64 + 0.5);
        let colour = if policy.starts_with("phalanx") { "#0072b2" } else { "#d55e00" };
        let _ = writeln!(
            svg,
            r#"<text x="{}" y="{:.1}" text-anchor="end">{policy}</text>"#,
            LEFT - 12.0,
            y + 4.0
        );
        let ratios = all
            .iter()
            .filter_map(|world| world.get(at).map(|of| (of.mean_s / best_fit(world).mean_s, of.is_chosen)));
        let mut logs = 0.0;
        for (ratio, is_chosen) in ratios {
            logs += ratio.ln();
            let fill = if is_chosen { colour } else { "none" };
            let _ = writeln!(
                svg,
                r#"<circle cx="{:.1}" cy="{y:.1}" r="4" fill="{fill}" fill-opacity="0.6" stroke="{colour}"/>"#,
                x(ratio)
            );
        }
        let mean = x((logs / all.len().max(1) as f64).exp());
        let _ = writeln!(
            svg,
            r##"<path d="M{mean:.1} {:.1}V{:.1}" stroke="#222222" stroke-width="2"/>"##,
            y - 11.0,
            y + 11.0
        );
    }
    svg + "</svg>\n"
}
