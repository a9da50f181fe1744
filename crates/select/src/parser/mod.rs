//! Parses a statement: recursive descent, with binding powers for operators.
//!
//! Why:        the dialect is small and its error messages are part of it; see docs/design/0011-select-engine.md.
//! Layout:     this file parses the statement, `expression` operators, `primary` names, literals and functions,
//!             `arguments` functions with keywords between their arguments.
//! Invariants: P1 neither the recursion nor the tree is deeper than `DEPTH_MAX`.
//!             P2 every token is visited a bounded number of times.

mod arguments;
mod expression;
mod primary;

use crate::ast::{Aggregate, Column, Columns, Expression, Query, Step};
use crate::error::{Error, Kind};
use crate::lexer::{Token, tokens};

/// Maximum nesting of an expression.
pub const DEPTH_MAX: usize = 100;
/// Maximum number of result columns.
pub const RESULT_COLUMNS_MAX: usize = 1024;
/// Maximum number of steps of a path.
const STEPS_MAX: usize = 64;

/// Keywords, which are names only when quoted.
const RESERVED: [&str; 23] = [
    "and", "as", "between", "case", "else", "end", "escape", "false", "from", "in", "is", "like", "limit", "missing",
    "not", "null", "or", "select", "then", "true", "when", "where", "distinct",
];
/// The table's names in a statement; the second is common in command-line tools.
pub(crate) const TABLES: [&str; 2] = ["s3object", "stdin"];

pub(crate) fn parse(expression: &str) -> Result<Query, Error> {
    let mut parser = Parser {
        tokens: tokens(expression)?,
        at: 0,
        depth: 0,
        aggregates: Vec::new(),
        in_aggregate: false,
        in_columns: false,
    };
    parser.statement()
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
    aggregates: Vec<Aggregate>,
    in_aggregate: bool,
    in_columns: bool,
}

impl Parser {
    fn statement(&mut self) -> Result<Query, Error> {
        self.expect_word("select")?;
        if self.is_word("distinct") {
            return Err(self.unsupported("DISTINCT"));
        }
        self.in_columns = true;
        let columns = self.columns()?;
        self.in_columns = false;
        self.expect_word("from")?;
        let from = self.source()?;
        let table = self.alias()?;
        if self.is_symbol(",") || self.is_word("join") {
            let message = "A statement selects from one object only";
            return Err(Error::new(Kind::UnsupportedStructure, message));
        }
        let filter = if self.take_word("where") { Some(self.expression()?) } else { None };
        if let Some(word) = ["group", "order", "having", "union"].into_iter().find(|word| self.is_word(word)) {
            return Err(self.unsupported(&word.to_uppercase()));
        }
        let limit = if self.take_word("limit") { Some(self.limit()?) } else { None };
        self.take_symbol(";");
        if *self.peek() != Token::End {
            return Err(self.unexpected("the end of the statement"));
        }
        let aggregates = std::mem::take(&mut self.aggregates);
        Ok(Query { columns, from, table, filter, limit, aggregates })
    }

    fn columns(&mut self) -> Result<Columns, Error> {
        if self.take_symbol("*") {
            return Ok(Columns::All);
        }
        let is_all = matches!(self.peek(), Token::Word(_))
            && *self.ahead(1) == Token::Symbol(".")
            && *self.ahead(2) == Token::Symbol("*");
        if is_all {
            self.at += 3;
            return Ok(Columns::All);
        }
        let mut columns = Vec::new();
        loop {
            if columns.len() == RESULT_COLUMNS_MAX {
                let message = format!("More than {RESULT_COLUMNS_MAX} columns are selected");
                return Err(Error::new(Kind::TooManyColumns, message));
            }
            let expression = self.expression()?;
            let alias = self.alias()?;
            let name = match (&alias, &expression) {
                (Some(alias), _) => alias.clone(),
                (None, Expression::Name(steps, _)) => last_key(steps),
                (None, _) => String::new(),
            };
            let name = if name.is_empty() { format!("_{}", columns.len() + 1) } else { name };
            columns.push(Column { expression, alias, name });
            if !self.take_symbol(",") {
                return Ok(Columns::Some(columns));
            }
        }
    }

    /// `AS name`, or just the name.
    fn alias(&mut self) -> Result<Option<String>, Error> {
        let has_as = self.take_word("as");
        let name = match self.peek() {
            Token::Quoted(name) => name.clone(),
            Token::Word(name) if !is_reserved(name) && (has_as || !is_clause(name)) => name.clone(),
            _ if has_as => return Err(self.unexpected("a name")),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(name))
    }

    fn source(&mut self) -> Result<Vec<Step>, Error> {
        let known = matches!(self.peek(), Token::Word(word) | Token::Quoted(word)
            if TABLES.iter().any(|table| word.eq_ignore_ascii_case(table)));
        if !known {
            return Err(self.unexpected("S3Object"));
        }
        self.at += 1;
        let mut steps = self.steps()?;
        // The leading `[*]`: all documents of the object.
        if steps.first() == Some(&Step::Every) {
            steps.remove(0);
        }
        Ok(steps)
    }

    /// Any number of steps `.key`, `['key']`, `[0]` and `[*]`.
    fn steps(&mut self) -> Result<Vec<Step>, Error> {
        let mut steps = Vec::new();
        loop {
            if steps.len() > STEPS_MAX {
                return Err(Error::new(Kind::UnsupportedSyntax, format!("A path has more than {STEPS_MAX} steps")));
            }
            if self.take_symbol(".") {
                let step = match self.peek() {
                    Token::Word(name) => Step::Key { name: name.clone(), exact: false },
                    Token::Quoted(name) => Step::Key { name: name.clone(), exact: true },
                    Token::Symbol("*") => Step::Every,
                    _ => return Err(self.unexpected("a name")),
                };
                self.at += 1;
                steps.push(step);
            } else if self.take_symbol("[") {
                let step = match self.peek() {
                    Token::Symbol("*") => Step::Every,
                    Token::Text(name) | Token::Quoted(name) => Step::Key { name: name.clone(), exact: true },
                    Token::Integer(index) => {
                        let index = usize::try_from(*index).map_err(|_| self.unexpected("an index"))?;
                        Step::Index(index)
                    }
                    _ => return Err(self.unexpected("an index, a name or *")),
                };
                self.at += 1;
                self.expect_symbol("]")?;
                steps.push(step);
            } else {
                return Ok(steps);
            }
        }
    }

    fn limit(&mut self) -> Result<u64, Error> {
        let Token::Integer(limit) = *self.peek() else { return Err(self.unexpected("a number")) };
        self.at += 1;
        Ok(limit.unsigned_abs())
    }

    fn peek(&self) -> &Token {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> &Token {
        self.tokens.get(self.at + count).map_or(&Token::End, |(token, _)| token)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Error> {
        if self.take_word(word) { Ok(()) } else { Err(self.unexpected(&word.to_uppercase())) }
    }

    fn is_symbol(&self, symbol: &'static str) -> bool {
        *self.peek() == Token::Symbol(symbol)
    }

    fn take_symbol(&mut self, symbol: &'static str) -> bool {
        let found = self.is_symbol(symbol);
        self.at += usize::from(found);
        found
    }

    fn expect_symbol(&mut self, symbol: &'static str) -> Result<(), Error> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(self.unexpected(symbol)) }
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let (token, at) = self.tokens.get(self.at).map_or((&Token::End, 0), |(token, at)| (token, *at));
        let found = match token {
            Token::Word(text) => text.clone(),
            Token::Quoted(text) | Token::Text(text) | Token::Timestamp(text) => format!("the text {text:?}"),
            Token::Integer(number) => number.to_string(),
            Token::Float(number) => number.to_string(),
            Token::Symbol(symbol) => (*symbol).to_owned(),
            Token::End => "the end".to_owned(),
        };
        let found: String = found.chars().take(64).collect();
        Error::new(Kind::UnexpectedToken, format!("Unexpected {found} at byte {at}; expected {wanted}"))
    }

    fn unsupported(&self, what: &str) -> Error {
        Error::new(Kind::UnsupportedSyntax, format!("{what} is not supported"))
    }
}

fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}

/// Keywords that may follow a name, so that they are an alias only after AS.
fn is_clause(word: &str) -> bool {
    ["group", "order", "having", "union", "join"].iter().any(|clause| word.eq_ignore_ascii_case(clause))
}

fn last_key(steps: &[Step]) -> String {
    match steps.last() {
        Some(Step::Key { name, .. }) => name.clone(),
        _ => String::new(),
    }
}
