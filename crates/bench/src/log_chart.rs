//! Curves over several powers of ten: both axes logarithmic, one panel below another on the same scales.
//!
//! Why:      sizes from a thousand to ten million, and times that differ by as much, show nothing on even axes.
//! Not here: charts from zero (`report`).

use std::fmt::Write as _;

use crate::report::{self, TITLE_LINE, WIDTH, colour, dashes, escape, short};

const PANEL: f64 = 230.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 48.0;
const ABOVE: f64 = 28.0;
const BELOW: f64 = 40.0;
const HEAD: f64 = 20.0;
const LEGEND_LINE: f64 = 18.0;

#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Drawn as an open circle: what stands there was not reached in full.
    pub(crate) cut: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// One line for each name of the picture, in their order; empty where there is nothing.
    pub(crate) lines: Vec<Vec<Mark>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Picture {
    pub(crate) title: String,
    /// How to read it.
    pub(crate) note: String,
    pub(crate) x: String,
    pub(crate) y: String,
    /// What the lines of each panel stand for.
    pub(crate) names: Vec<String>,
    pub(crate) panels: Vec<Panel>,
}

/// Whole powers of ten around some values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decades {
    first: i32,
    last: i32,
}

impl Decades {
    fn around(values: impl Iterator<Item = f64>) -> Decades {
        let (least, most) = values
            .filter(|value| *value > 0.0)
            .fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), value| (least.min(value), most.max(value)));
        if least > most {
            return Decades { first: 0, last: 1 };
        }
        let first = least.log10().floor() as i32;
        Decades { first, last: (most.log10().ceil() as i32).max(first + 1) }
    }

    /// Where a value is between both ends, from 0 to 1.
    fn share(self, value: f64) -> f64 {
        let exponent = value.max(f64::MIN_POSITIVE).log10();
        ((exponent - f64::from(self.first)) / f64::from(self.last - self.first)).clamp(0.0, 1.0)
    }

    fn ticks(self) -> impl Iterator<Item = f64> {
        (self.first..=self.last).map(|exponent| 10f64.powi(exponent))
    }
}

impl Picture {
    pub(crate) fn svg(&self) -> String {
        let marks = || self.panels.iter().flat_map(|panel| panel.lines.iter().flatten());
        let (x, y) = (Decades::around(marks().map(|mark| mark.x)), Decades::around(marks().map(|mark| mark.y)));
        let notes = report::lines(&self.note);
        let legend = HEAD + TITLE_LINE * (notes.len() as f64 + 1.0);
        let head = legend + LEGEND_LINE * self.names.len() as f64;
        let mut out = report::open_svg(&self.title, head + PANEL * self.panels.len() as f64);
        out.push_str(&report::title(&self.title, HEAD));
        for (note, line) in notes.iter().zip(1u16..) {
            let (middle, y) = (WIDTH / 2.0, HEAD + TITLE_LINE * f64::from(line));
            let _ = writeln!(
                out,
                "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
                escape(note)
            );
        }
        for (index, name) in self.names.iter().enumerate() {
            let (y, colour, dashes) = (legend + LEGEND_LINE * index as f64, colour(index), dashes(index));
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"3\" \
                 stroke-dasharray=\"{dashes}\"/><text x=\"{}\" y=\"{}\">{}</text>",
                LEFT + 22.0,
                LEFT + 30.0,
                y + 4.0,
                escape(name)
            );
        }
        for (index, panel) in self.panels.iter().enumerate() {
            self.draw(panel, head + PANEL * index as f64, x, y, &mut out);
        }
        out.push_str("</svg>\n");
        out
    }

    fn draw(&self, panel: &Panel, top: f64, x: Decades, y: Decades, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, top + PANEL - BELOW);
        let x_of = |value| LEFT + x.share(value) * (right - LEFT);
        let y_of = |value| bottom - y.share(value) * (bottom - top - ABOVE);
        let mut add = |line: String| {
            let _ = writeln!(out, "{line}");
        };
        add(format!("<text x=\"{LEFT}\" y=\"{}\" font-size=\"13\">{}</text>", top + 18.0, escape(&panel.title)));
        add(format!("<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>", bottom + 32.0, escape(&self.x)));
        add(format!("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", LEFT - 8.0, top + 18.0, escape(&self.y)));
        for tick in y.ticks() {
            let (at, label) = (y_of(tick), short(tick));
            add(format!("<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>"));
            add(format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, at + 4.0));
        }
        for tick in x.ticks() {
            let (at, label, above) = (x_of(tick), short(tick), top + ABOVE);
            add(format!("<line x1=\"{at:.1}\" y1=\"{above}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>"));
            add(format!("<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>", bottom + 16.0));
        }
        for (index, line) in panel.lines.iter().enumerate() {
            let (colour, dashes) = (colour(index), dashes(index));
            let path: Vec<String> =
                line.iter().map(|mark| format!("{:.1},{:.1}", x_of(mark.x), y_of(mark.y))).collect();
            let path = path.join(" ");
            add(format!(
                "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>"
            ));
            for mark in line {
                let (x, y, fill) = (x_of(mark.x), y_of(mark.y), if mark.cut { "white" } else { colour });
                add(format!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"2\"/>"
                ));
                if mark.cut {
                    add(format!("<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">cut</text>", x + 8.0, y + 4.0));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_enclose_their_values() {
        let around = |values: &[f64]| Decades::around(values.iter().copied());
        assert_eq!(around(&[1000.0, 2000.0, 1e7]), Decades { first: 3, last: 7 });
        assert_eq!(around(&[0.5, 0.0]), Decades { first: -1, last: 0 });
        assert_eq!(around(&[100.0]), Decades { first: 2, last: 3 });
        assert_eq!(around(&[]), Decades { first: 0, last: 1 });
        let decades = around(&[1.0, 1e4]);
        assert_eq!([1.0, 100.0, 1e4, 0.0, 1e9].map(|value| decades.share(value)), [0.0, 0.5, 1.0, 0.0, 1.0]);
    }

    #[test]
    fn a_picture_shows_each_line_and_what_was_cut() {
        let mark = |x, y, cut| Mark { x, y, cut };
        let panel = Panel {
            title: "create".to_owned(),
            lines: vec![vec![mark(1e3, 10.0, false), mark(1e4, 100.0, true)], Vec::new()],
        };
        let picture = Picture {
            title: "a < b".to_owned(),
            note: "level".to_owned(),
            x: "files".to_owned(),
            y: "us".to_owned(),
            names: vec!["one".to_owned(), "other".to_owned()],
            panels: vec![panel.clone(), panel],
        };
        let svg = picture.svg();
        assert!(svg.contains("a &lt; b") && svg.contains(">other<") && svg.ends_with("</svg>\n"), "{svg}");
        assert_eq!((svg.matches(">cut<").count(), svg.matches("<polyline").count()), (2, 4), "{svg}");
    }
}
