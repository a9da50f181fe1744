//! Resolves names to CSV fields, paths in JSON, or result columns.
//!
//! Why:        each name is resolved once instead of once per record, and an unknown name is an error before any record
//!             is read.
//! Invariants: N1 afterwards no `Expression::Name` is left, and no result column depends on itself.
//!             N2 every expression, with the columns that it refers to, is at most `DEPTH_MAX` levels high.

use std::collections::HashMap;

use crate::ast::{Columns, Expression, Literal, Query, Step};
use crate::error::{Error, Kind};
use crate::parser::{DEPTH_MAX, TABLES};
use crate::{COLUMNS_MAX, Dialect};

/// The names that are in scope.
#[derive(Debug)]
pub(crate) struct Names<'n> {
    pub dialect: Dialect,
    pub is_json: bool,
    /// The first CSV record, if it holds the column names.
    pub header: Option<&'n [String]>,
}

pub(crate) fn bind(query: &mut Query, names: &Names<'_>) -> Result<(), Error> {
    if !names.is_json && !query.from.is_empty() {
        return Err(Error::new(Kind::UnsupportedStructure, "A path in FROM is for JSON only"));
    }
    let columns = query.columns.as_slice();
    let aliases: Vec<Option<String>> = columns.iter().map(|column| column.alias.clone()).collect();
    if names.dialect == Dialect::Ceph {
        refuse_double(&aliases, names)?;
    }
    let table = query.table.clone();
    let header = names.header.map(Header::new);
    let scope = Scope { names, header, aliases: &aliases, table: table.as_deref() };
    if let Columns::Some(columns) = &mut query.columns {
        for (index, column) in columns.iter_mut().enumerate() {
            scope.resolve(&mut column.expression, Some(index))?;
        }
    }
    query.filter.as_mut().map_or(Ok(()), |filter| scope.resolve(filter, None))?;
    for argument in query.aggregates.iter_mut().filter_map(|aggregate| aggregate.argument.as_mut()) {
        scope.resolve(argument, None)?;
    }
    check_extents(query)?;
    check_aggregates(query)
}

fn refuse_double(aliases: &[Option<String>], names: &Names<'_>) -> Result<(), Error> {
    let Some(header) = names.header else { return Ok(()) };
    match aliases.iter().flatten().find(|alias| header.contains(alias)) {
        None => Ok(()),
        Some(alias) => {
            let message = format!("multiple definition of column {{{alias}}} as schema-column and alias");
            Err(Error::new(Kind::Processing, message))
        }
    }
}

/// The index of a CSV column by name, of duplicates the first. A hash map, because a statement may have as many names
/// as an object has columns.
struct Header<'n> {
    exact: HashMap<&'n str, usize>,
    /// In lower case.
    folded: HashMap<String, usize>,
}

impl<'n> Header<'n> {
    fn new(names: &'n [String]) -> Header<'n> {
        let mut header = Header { exact: HashMap::new(), folded: HashMap::new() };
        for (index, name) in names.iter().enumerate() {
            header.exact.entry(name).or_insert(index);
            header.folded.entry(name.to_ascii_lowercase()).or_insert(index);
        }
        header
    }

    fn find(&self, name: &str, exact: bool) -> Option<usize> {
        let folded = || if exact { None } else { self.folded.get(&name.to_ascii_lowercase()) };
        self.exact.get(name).or_else(folded).copied()
    }
}

struct Scope<'s> {
    names: &'s Names<'s>,
    header: Option<Header<'s>>,
    aliases: &'s [Option<String>],
    table: Option<&'s str>,
}

impl Scope<'_> {
    /// `own`: the column whose expression this is; it cannot refer to itself.
    fn resolve(&self, expression: &mut Expression, own: Option<usize>) -> Result<(), Error> {
        if let Expression::Name(steps, alone) = expression {
            let (steps, alone) = (std::mem::take(steps), *alone);
            *expression = self.name(steps, alone, own)?;
            return Ok(());
        }
        expression.parts_mut().iter_mut().try_for_each(|part| self.resolve(part, own))
    }

    fn name(&self, mut steps: Vec<Step>, alone: bool, own: Option<usize>) -> Result<Expression, Error> {
        let is_table = |step: &Step| match step {
            Step::Key { name, .. } => {
                self.table.into_iter().chain(TABLES).any(|table| name.eq_ignore_ascii_case(table))
            }
            _ => false,
        };
        let qualified = steps.len() > 1 && is_table(&steps[0]);
        if qualified {
            steps.remove(0);
        } else if steps.len() == 1 {
            let column = self.named(&steps[0]).map(Expression::Field);
            if let Some(column) = column.or_else(|| self.alias(&steps[0], own)) {
                return Ok(column);
            }
            let is_text = alone && (!self.names.is_json || self.names.dialect == Dialect::Ceph);
            if let (true, [Step::Key { name, .. }]) = (is_text, steps.as_slice()) {
                return Ok(Expression::Literal(Literal::Text(name.clone())));
            }
            if self.names.is_json && is_table(&steps[0]) {
                return Ok(Expression::Member(Vec::new()));
            }
        }
        if self.names.is_json {
            // The record itself, in Ceph's dialect.
            if steps.first().is_some_and(|step| step.is_key("_1")) {
                steps.remove(0);
            }
            return Ok(Expression::Member(steps));
        }
        match (self.field(&steps[0]), steps.as_slice()) {
            (Some(field), [_]) => Ok(Expression::Field(field)),
            (_, [Step::Key { name, .. }, ..]) => {
                let name: String = name.chars().take(128).collect();
                let message = format!("alias {{{name}}} or column not exist in schema");
                Err(Error::new(Kind::Processing, message))
            }
            _ => Err(Error::new(Kind::Processing, "A field of CSV has no parts")),
        }
    }

    /// A CSV column by name or number (`_1` is the first).
    fn field(&self, step: &Step) -> Option<usize> {
        self.named(step).or_else(|| {
            let Step::Key { name, .. } = step else { return None };
            let number: usize = name.strip_prefix('_')?.parse().ok()?;
            (1..=COLUMNS_MAX).contains(&number).then(|| number - 1)
        })
    }

    /// A CSV column by name.
    fn named(&self, step: &Step) -> Option<usize> {
        let Step::Key { name, exact } = step else { return None };
        self.header.as_ref()?.find(name, *exact)
    }

    /// A result column. Where the names of records are unknown, AWS's dialect has no such references.
    fn alias(&self, step: &Step, own: Option<usize>) -> Option<Expression> {
        if self.names.is_json && self.names.dialect == Dialect::Aws {
            return None;
        }
        let fits = |alias: &Option<String>| alias.as_ref().is_some_and(|alias| step.is_key(alias));
        let found = self.aliases.iter().enumerate().find(|(index, alias)| Some(*index) != own && fits(alias));
        found.map(|(index, _)| Expression::Alias(index))
    }
}

/// Height and kind of an expression, including the columns that it refers to.
#[derive(Clone, Copy, Default)]
struct Extent {
    levels: usize,
    has_aggregate: bool,
}

fn check_extents(query: &Query) -> Result<(), Error> {
    let mut known = vec![None; query.columns.as_slice().len()];
    for column in query.columns.as_slice() {
        extent(&column.expression, query, &mut known, 0)?;
    }
    let arguments = query.aggregates.iter().filter_map(|aggregate| aggregate.argument.as_ref());
    for of_records in arguments.chain(&query.filter) {
        if extent(of_records, query, &mut known, 0)?.has_aggregate {
            let message = "An aggregate cannot be used where records are looked at";
            return Err(Error::new(Kind::UnsupportedStructure, message));
        }
    }
    Ok(())
}

/// `known` caches the extents of columns, so that each is computed once.
fn extent(expression: &Expression, query: &Query, known: &mut [Option<Extent>], above: usize) -> Result<Extent, Error> {
    let column = if let Expression::Alias(index) = expression { Some(*index) } else { None };
    let mut found = column.and_then(|index| known[index]).unwrap_or_default();
    if above + found.levels > DEPTH_MAX {
        let message = "number of calls exceed maximum size, probably a cyclic reference to alias";
        return Err(Error::new(Kind::UnsupportedStructure, message));
    }
    if let Some(index) = column.filter(|index| known[*index].is_none()) {
        found = extent(&query.columns.as_slice()[index].expression, query, known, above + 1)?;
        known[index] = Some(found);
    }
    found.has_aggregate |= matches!(expression, Expression::Aggregate(_));
    for part in expression.parts() {
        let part = extent(part, query, known, above + 1)?;
        found.levels = found.levels.max(part.levels);
        found.has_aggregate |= part.has_aggregate;
    }
    found.levels += 1;
    Ok(found)
}

/// A result with aggregates has no record, so plain fields are refused.
fn check_aggregates(query: &Query) -> Result<(), Error> {
    fn needs_record(expression: &Expression) -> bool {
        matches!(expression, Expression::Field(_) | Expression::Member(_))
            || expression.parts().iter().any(needs_record)
    }
    let mixed = query.columns.as_slice().iter().any(|column| needs_record(&column.expression));
    if mixed && !query.aggregates.is_empty() {
        let message = "A statement selects either aggregates or fields of records";
        return Err(Error::new(Kind::UnsupportedStructure, message));
    }
    Ok(())
}
