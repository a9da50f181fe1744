//! Bars: what several directories reach in each phase, each phase on its own scale.
//!
//! Why:      phases differ by factors of a hundred; what is compared is the directories within one.

use std::fmt::Write as _;

use crate::report::{COLOURS, escape, short};

const WIDTH: f64 = 680.0;
const LABEL: f64 = 230.0;
const VALUE: f64 = 110.0;
const BAR: f64 = 14.0;
const GAP: f64 = 10.0;
const TITLE: f64 = 34.0;

/// One phase: a bar for each directory.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Value and unit; None for what was not reached.
    pub(crate) bars: Vec<(Option<f64>, &'static str)>,
}

/// A picture; `names` are what the bars of each group stand for.
pub(crate) fn svg(title: &str, names: &[String], groups: &[Group]) -> String {
    let height = TITLE
        + BAR * 1.5 * names.len() as f64
        + groups.iter().map(|group| GAP + BAR * group.bars.len() as f64).sum::<f64>()
        + GAP;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut add = |line: String| {
        let _ = writeln!(out, "{line}");
    };
    let middle = WIDTH / 2.0;
    add(format!("<text x=\"{middle}\" y=\"20\" text-anchor=\"middle\" font-size=\"15\">{}</text>", escape(title)));
    let mut y = TITLE;
    for (index, name) in names.iter().enumerate() {
        let (colour, text_y) = (COLOURS[index % COLOURS.len()], y + BAR - 3.0);
        add(format!("<rect x=\"{LABEL}\" y=\"{y}\" width=\"{BAR}\" height=\"{}\" fill=\"{colour}\"/>", BAR - 2.0));
        add(format!("<text x=\"{}\" y=\"{text_y}\">{}</text>", LABEL + BAR + 6.0, escape(name)));
        y += BAR * 1.5;
    }
    for group in groups {
        y += GAP;
        let most = group.bars.iter().filter_map(|(value, _)| *value).fold(f64::MIN_POSITIVE, f64::max);
        let label_y = y + BAR * group.bars.len() as f64 / 2.0 + 4.0;
        add(format!("<text x=\"{}\" y=\"{label_y}\" text-anchor=\"end\">{}</text>", LABEL - 8.0, escape(&group.name)));
        for (index, (value, unit)) in group.bars.iter().enumerate() {
            let share = value.unwrap_or_default() / most;
            let (width, colour) = (share * (WIDTH - LABEL - VALUE), COLOURS[index % COLOURS.len()]);
            let said = value.map_or("-".to_owned(), |value| format!("{} {unit}", short(value)));
            add(format!(
                "<rect x=\"{LABEL}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>",
                BAR - 2.0
            ));
            let (text_x, text_y) = (LABEL + width + 6.0, y + BAR - 4.0);
            add(format!("<text x=\"{text_x:.1}\" y=\"{text_y:.1}\">{said}</text>"));
            y += BAR;
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_of_each_group_fills_it() {
        let group = |name: &str, bars| Group { name: name.to_owned(), bars };
        let groups = [
            group("a & b", vec![(Some(10.0), "s"), (Some(5.0), "s"), (None, "s")]),
            group("c", vec![(Some(1.0), "s"), (Some(4000.0), "s")]),
        ];
        let svg = svg("t", &["x".to_owned(), "y".to_owned()], &groups);
        assert!(svg.contains("a &amp; b") && svg.contains("4k s") && svg.contains(">-<"), "{svg}");
        assert_eq!(svg.matches("width=\"340.0\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("width=\"170.0\"").count(), 1, "{svg}");
    }
}
