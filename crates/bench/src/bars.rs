//! Bars: what several reach in each phase, each phase on its own scale.
//!
//! Why:      phases differ by factors of a hundred; what is compared is the names within one. Each bar has its name beside
//!           it: ten colours are told apart by nobody.

use std::fmt::Write as _;

use crate::report::{self, TITLE_LINE, WIDTH, colour, escape, short};

/// Where bars begin and how long the longest is: names stand before them, values behind.
const LEFT: f64 = 120.0;
const LENGTH: f64 = 290.0;
const BAR: f64 = 14.0;
const HEAD: f64 = 20.0;
/// Above the bars of a phase, for what it is.
const PHASE: f64 = 26.0;
/// The last letters of a name that fit before its bar.
const NAME_LETTERS: usize = 17;

/// One phase: a bar for each name.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) more_is_better: bool,
    pub(crate) bars: Vec<Bar>,
}

/// What one name reached in a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    To(f64),
    /// It was tried.
    Failed,
    /// There is no such thing there: a second mount point of a local file system.
    Nothing,
}

impl Bar {
    fn value(self) -> Option<f64> {
        if let Bar::To(value) = self { Some(value) } else { None }
    }

    fn said(self) -> String {
        match self {
            Bar::To(value) => short(value),
            Bar::Failed => "failed".to_owned(),
            Bar::Nothing => "-".to_owned(),
        }
    }
}

/// A picture; `names` are what the bars of each group stand for.
pub(crate) fn svg(title: &str, names: &[String], groups: &[Group]) -> String {
    let top = HEAD + TITLE_LINE * report::lines(title).len() as f64;
    let height = top + groups.iter().map(|group| PHASE + BAR * group.bars.len() as f64).sum::<f64>() + BAR;
    let mut out = report::open_svg(title, height);
    out.push_str(&report::title(title, HEAD));
    let mut y = top;
    for group in groups {
        draw(group, names, y, &mut out);
        y += PHASE + BAR * group.bars.len() as f64;
    }
    out.push_str("</svg>\n");
    out
}

fn draw(group: &Group, names: &[String], top: f64, out: &mut String) {
    let mut add = |line: String| {
        let _ = writeln!(out, "{line}");
    };
    let better = if group.more_is_better { "longer" } else { "shorter" };
    let (x, y) = (WIDTH / 2.0, top + PHASE - 10.0);
    add(format!(
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\"><tspan font-weight=\"bold\">{}</tspan>\
         <tspan fill=\"#555\">, {}; {better} is better</tspan></text>",
        escape(&group.name),
        group.unit
    ));
    let most = group.bars.iter().filter_map(|bar| bar.value()).fold(f64::MIN_POSITIVE, f64::max);
    for (index, (bar, name)) in group.bars.iter().zip(names).enumerate() {
        let y = top + PHASE + BAR * index as f64;
        let (width, colour) = (bar.value().unwrap_or_default() / most * LENGTH, colour(index));
        let (said, text_y) = (bar.said(), y + BAR - 4.0);
        add(format!(
            "<text x=\"{}\" y=\"{text_y:.1}\" text-anchor=\"end\" font-size=\"11\">{}</text>",
            LEFT - 6.0,
            escape(&shortened(name))
        ));
        add(format!(
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>",
            BAR - 2.0
        ));
        add(format!("<text x=\"{:.1}\" y=\"{text_y:.1}\" font-size=\"11\">{said}</text>", LEFT + width + 5.0));
    }
}

/// The end of a long name, such as a path.
fn shortened(name: &str) -> String {
    match name.chars().count().checked_sub(NAME_LETTERS) {
        None | Some(0) => name.to_owned(),
        Some(more) => format!("\u{2026}{}", name.chars().skip(more + 1).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_of_each_group_fills_it() {
        let group =
            |name: &str, unit, bars| Group { name: name.to_owned(), unit, more_is_better: unit == "MB/s", bars };
        let groups = [
            group("a & b", "s", vec![Bar::To(10.0), Bar::To(5.0), Bar::Failed]),
            group("c", "MB/s", vec![Bar::To(1.0), Bar::To(4000.0), Bar::Nothing]),
        ];
        let names = ["x", "/long/path/of/a/directory", "z"].map(str::to_owned);
        let svg = svg("t", &names, &groups);
        assert!(svg.contains("a &amp; b") && svg.contains(">4k<") && svg.contains(">failed<"), "{svg}");
        assert!(svg.contains(">-<"), "what was not tried has not failed: {svg}");
        assert!(svg.contains("\u{2026}") && svg.contains("s; shorter is") && svg.contains("MB/s; longer is"), "{svg}");
        assert_eq!(svg.matches("width=\"290.0\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("width=\"145.0\"").count(), 1, "{svg}");
    }
}
