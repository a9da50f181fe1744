//! The table of a comparison as a page shows it: a line for each phase, a column for each name.
//!
//! Why: the file has a line for each name in each phase, which programs like; with ten names people do not.

/// The columns of a comparison's file; before them `clients` when there were several numbers of them.
const COLUMNS: [&str; 6] = ["phase", "name", "median", "unit", "of the first", "spread"];

/// The same figures by phase; None for any other table. A cell has the median, and on a line of its own the ratio to the first.
pub(super) fn by_phase(table: &[Vec<String>]) -> Option<Vec<Vec<String>>> {
    let head = table.first()?;
    let clients = usize::from(head.first().is_some_and(|column| column == "clients"));
    if head[clients..] != COLUMNS {
        return None;
    }
    let rows = &table[1..];
    let (mut names, mut phases) = (Vec::new(), Vec::new());
    for row in rows.iter().filter(|row| row.len() == head.len()) {
        let phase = (row[..=clients].join(" at once: "), row[clients + 3].clone());
        if !names.contains(&row[clients + 1]) {
            names.push(row[clients + 1].clone());
        }
        if !phases.contains(&phase) {
            phases.push(phase);
        }
    }
    let cell = |phase: &str, name: &String| {
        let of_phase = |row: &&Vec<String>| row[..=clients].join(" at once: ") == phase && row[clients + 1] == *name;
        rows.iter().find(of_phase).map_or_else(String::new, |row| shown(&row[clients + 2..], *name == names[0]))
    };
    let lines = phases.iter().map(|(phase, unit)| {
        let cells = names.iter().map(|name| cell(phase, name));
        std::iter::once(format!("{phase}, {unit}")).chain(cells).collect()
    });
    let head = std::iter::once("phase".to_owned()).chain(names.iter().cloned()).collect();
    Some(std::iter::once(head).chain(lines).collect())
}

/// Median, unit, ratio and spread as a cell.
fn shown(figures: &[String], is_first: bool) -> String {
    let [median, _, ratio, spread] = figures else { return String::new() };
    match (median.as_str(), spread.contains("failed")) {
        ("-", true) => "failed".to_owned(),
        // Such as a second mount point of a local file system.
        ("-", false) => "-".to_owned(),
        (_, true) => format!("{median}\n{ratio}, then failed"),
        (_, false) if is_first => median.clone(),
        (_, false) => format!("{median}\n{ratio}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &[&str]) -> Vec<Vec<String>> {
        lines.iter().map(|line| line.split('|').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn phases_are_lines_and_names_columns() {
        let one = table(&[
            "phase|name|median|unit|of the first|spread",
            "make|a|10|s|1.00|1.00-1.00",
            "make|b|20|s|2.00|1.90-2.10, then failed",
            "remove|a|3|s|1.00|1.00-1.00",
            "remove|b|-|s|-|failed: gone",
            "mount twice|a|2|s|1.00|1.00-1.00",
            "mount twice|b|-|s|-|",
        ]);
        let wanted =
            table(&["phase|a|b", "make, s|10|20\n2.00, then failed", "remove, s|3|failed", "mount twice, s|2|-"]);
        assert_eq!(by_phase(&one), Some(wanted));
        let several =
            table(&["clients|phase|name|median|unit|of the first|spread", "1|make|a|1|s|1.00|", "4|make|a|2|s|1.00|"]);
        assert_eq!(by_phase(&several), Some(table(&["phase|a", "1 at once: make, s|1", "4 at once: make, s|2"])));
        assert_eq!(by_phase(&table(&["keys|ms", "1|2"])), None);
        assert_eq!(by_phase(&[]), None);
    }
}
