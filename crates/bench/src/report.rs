//! Reports as files: JSON, CSV and a plain line chart.
//!
//! Why:      numbers must outlive the terminal and be comparable by other tools.
//! Not here: which numbers (`ls`, `load`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use margay_env::{Env, OpenMode};
use serde::Serialize;

use crate::error::BenchError;

/// What a benchmark has to say in the end.
pub(crate) trait Report: Serialize {
    /// The whole report for a terminal.
    fn text(&self) -> String;
    /// Writes the files of `--report`.
    fn write_files(&self, env: &Env, directory: &Path) -> Result<(), BenchError>;
}

/// Where a report goes.
#[derive(Clone, Debug, clap::Args)]
pub struct OutputArgs {
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Also write JSON, CSV and SVG files into this directory
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

impl OutputArgs {
    /// Makes the directory of `--report`: a long run must not learn at its end that it cannot.
    pub(crate) fn prepare(&self, env: &Env) -> Result<(), BenchError> {
        self.report
            .iter()
            .try_for_each(|directory| env.disk.create_dir_all(directory).map_err(BenchError::file(directory)))
    }

    /// Prints the report and writes its files.
    pub(crate) fn show(&self, env: &Env, report: &impl Report) -> Result<(), BenchError> {
        match self.json {
            true => print_json(report),
            false => print!("{}", report.text()),
        }
        self.report.iter().try_for_each(|directory| report.write_files(env, directory))
    }
}

/// A report as indented JSON.
pub(crate) fn json(report: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("reports hold only numbers, strings and lists");
    text.push('\n');
    text
}

pub(crate) fn print_json(report: &impl Serialize) {
    print!("{}", json(report));
}

/// Writes files into a directory that is made when it is missing; files of the same name are replaced.
pub(crate) fn write_files(env: &Env, directory: &Path, files: &[(impl AsRef<str>, String)]) -> Result<(), BenchError> {
    env.disk.create_dir_all(directory).map_err(BenchError::file(directory))?;
    for (name, content) in files {
        let path = directory.join(name.as_ref());
        let write = || {
            let file = env.disk.open(&path, OpenMode::OpenOrCreate)?;
            file.set_len(0)?;
            file.write_all_at(content.as_bytes(), 0)
        };
        write().map_err(BenchError::file(&path))?;
    }
    Ok(())
}

/// One line of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A line chart with both axes from zero.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub title: String,
    pub x: String,
    pub y: String,
    pub lines: Vec<Line>,
}

/// Of every picture: narrow, so that its letters can be read on a phone.
pub(crate) const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 52.0;
/// Letters of a title that fit into the width, and how far apart its lines are.
const TITLE_LETTERS: usize = 58;
pub(crate) const TITLE_LINE: f64 = 18.0;
const TICKS: u32 = 4;
/// Told apart by most colour-blind readers.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#000000"];

/// The colour of the line or bar with this number; they come again after the last.
pub(crate) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// How the line with this number is dashed: those whose colour comes again are.
pub(crate) fn dashes(index: usize) -> &'static str {
    if index < COLOURS.len() { "none" } else { "5 3" }
}

pub(crate) fn escape(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

/// The beginning of a picture: white paper, and what it shows for those who cannot see it.
pub(crate) fn open_svg(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        escape(title)
    )
}

/// Text in lines that fit into the width, broken between words.
pub(crate) fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + 1 + word.chars().count() > TITLE_LETTERS {
            lines.push(word.to_owned());
        } else {
            let blank = if lines[last].is_empty() { "" } else { " " };
            lines[last].push_str(&format!("{blank}{word}"));
        }
    }
    lines
}

/// A title in the middle, its first line at `top`.
pub(crate) fn title(text: &str, top: f64) -> String {
    let line = |(line, number): (&String, u16)| {
        let y = top + TITLE_LINE * f64::from(number);
        format!(
            "<text x=\"{}\" y=\"{y}\" text-anchor=\"middle\" font-size=\"14\">{}</text>\n",
            WIDTH / 2.0,
            escape(line)
        )
    };
    lines(text).iter().zip(0..).map(line).collect()
}

impl Chart {
    pub(crate) fn svg(&self) -> String {
        stacked(std::slice::from_ref(self))
    }

    /// Appends the chart's elements; `top` is the place of its upper edge.
    fn draw(&self, top: f64, out: &mut String) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_max = points().map(|point| point.0).fold(f64::MIN_POSITIVE, f64::max);
        let y_max = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
        let x_of = |x: f64| MARGIN + x / x_max * (WIDTH - 2.0 * MARGIN);
        let y_of = |y: f64| top + HEIGHT - MARGIN - y / y_max * (HEIGHT - 2.0 * MARGIN);
        let mut add = |line: String| {
            out.push_str(&line);
            out.push('\n');
        };
        let (middle, unit, bottom) = (WIDTH / 2.0, top + 40.0, top + HEIGHT - 12.0);
        add(title(&self.title, top + 20.0));
        add(format!("<text x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">{}</text>", escape(&self.x)));
        add(format!("<text x=\"{MARGIN}\" y=\"{unit}\" text-anchor=\"middle\">{}</text>", escape(&self.y)));
        for tick in 0..=TICKS {
            let part = f64::from(tick) / f64::from(TICKS);
            let (x, y) = (x_of(part * x_max), y_of(part * y_max));
            let (left, right) = (MARGIN, WIDTH - MARGIN);
            add(format!("<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"));
            let (beside, value) = (left - 6.0, short(part * y_max));
            add(format!("<text x=\"{beside}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>", y + 4.0));
            let (below, value) = (top + HEIGHT - MARGIN + 16.0, short(part * x_max));
            add(format!("<text x=\"{x:.1}\" y=\"{below}\" text-anchor=\"middle\">{value}</text>"));
        }
        for (index, line) in self.lines.iter().enumerate() {
            let (colour, dashes) = (colour(index), dashes(index));
            let mut path = String::new();
            for &(x, y) in &line.points {
                let _ = write!(path, "{:.1},{:.1} ", x_of(x), y_of(y));
            }
            add(format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
                path.trim_end()
            ));
            let (x, y) = (MARGIN + 12.0, top + MARGIN + 16.0 * (index as f64 + 1.0));
            add(format!("<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{}</text>", escape(&line.name)));
        }
    }
}

/// Charts below one another in one picture.
pub(crate) fn stacked(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let title = charts.iter().map(|chart| chart.title.as_str()).collect::<Vec<_>>().join("; ");
    let mut out = open_svg(&title, height);
    for (index, chart) in charts.iter().enumerate() {
        chart.draw(index as f64 * HEIGHT, &mut out);
    }
    out.push_str("</svg>\n");
    out
}

/// A number for an axis: few digits, large ones with their thousands as `k` and `M`.
pub(crate) fn short(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e3 => (value / 1e3, "k"),
        value => (value, ""),
    };
    let digits = if value >= 100.0 || value.fract() == 0.0 { 0 } else { 2 };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_holds_its_lines() {
        let chart = Chart {
            title: "a & b".to_owned(),
            x: "keys".to_owned(),
            y: "ms".to_owned(),
            lines: vec![Line { name: "one".to_owned(), points: vec![(0.0, 0.0), (10.0, 2.0)] }],
        };
        let svg = chart.svg();
        assert!(svg.contains("a &amp; b") && svg.contains("<polyline") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<title>").count(), 1, "{svg}");
        assert_eq!((short(2500.0), short(0.25), short(3e6)), ("2.50k".to_owned(), "0.25".to_owned(), "3M".to_owned()));
    }

    #[test]
    fn titles_are_broken_between_words() {
        let text = "many words ".repeat(20);
        let broken = lines(text.trim());
        assert!(broken.len() > 1 && broken.iter().all(|line| line.chars().count() <= TITLE_LETTERS), "{broken:?}");
        assert_eq!(broken.join(" "), text.trim());
        assert_eq!(lines(&"x".repeat(99)).len(), 1);
    }

    #[test]
    fn files_are_written_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (env, inner) = (Env::real(), directory.path().join("a/b"));
        write_files(&env, &inner, &[("x.csv", "long content\n".to_owned())]).unwrap();
        write_files(&env, &inner, &[("x.csv", "short\n".to_owned())]).unwrap();
        let file = env.disk.open(&inner.join("x.csv"), OpenMode::Read).unwrap();
        let mut content = vec![0; 6];
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!((content.as_slice(), file.len().unwrap()), (b"short\n".as_slice(), 6));
    }
}
