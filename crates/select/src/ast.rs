//! A statement as a tree.
//!
//! Why:        what the parser makes, what binding completes and what the evaluator runs is one shape.
//! Invariants: a tree is at most `parser::DEPTH_MAX` high, so that whoever walks it may recurse.

use crate::timestamp::{Part, Timestamp};

/// `SELECT columns FROM path WHERE filter LIMIT limit`.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub columns: Columns,
    /// From the document to its records; what stands before it (`S3Object[*]`) is left out.
    pub from: Vec<Step>,
    /// What the records are called besides `s3object`.
    pub table: Option<String>,
    pub filter: Option<Expression>,
    pub limit: Option<u64>,
    pub aggregates: Vec<Aggregate>,
}

#[derive(Clone, Debug)]
pub(crate) enum Columns {
    All,
    Some(Vec<Column>),
}

impl Columns {
    pub(crate) fn as_slice(&self) -> &[Column] {
        match self {
            Columns::All => &[],
            Columns::Some(columns) => columns,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub expression: Expression,
    pub alias: Option<String>,
    /// The key in JSON that is written.
    pub name: String,
}

/// One function over all records; its value stands in for `Expression::Aggregate`.
#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub function: AggregateFunction,
    /// `None`: `*`.
    pub argument: Option<Expression>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateFunction {
    Avg,
    Count,
    Max,
    Min,
    Sum,
}

/// A step of a path into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key {
        name: String,
        /// In quotes: upper and lower case matter.
        exact: bool,
    },
    Index(usize),
    Every,
}

impl Step {
    pub(crate) fn is_key(&self, key: &str) -> bool {
        matches!(self, Step::Key { name, exact } if name == key || (!exact && name.eq_ignore_ascii_case(key)))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Missing,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Timestamp(Timestamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Concatenate,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Float,
    Integer,
    Text,
    Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Null,
    Missing,
    Bool(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Both,
    Leading,
    Trailing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    CharLength,
    Coalesce,
    DateAdd(Part),
    DateDiff(Part),
    Extract(Part),
    Lower,
    NullIf,
    Size,
    Substring,
    ToText,
    ToTimestamp,
    Trim(Side),
    Upper,
    UtcNow,
}

/// What an expression makes of others, its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Not,
    Negate,
    /// Left and right.
    Binary(Operator),
    All,
    Any,
    /// Text, pattern, and the escape character if there is one.
    Like,
    /// Value, lower and upper end.
    Between,
    /// A value and those that it is compared with.
    In,
    Is(Condition),
    /// Condition and result in turns, then what else it is.
    Case,
    /// A value, then values and results in turns, then what else it is.
    Match,
    Cast(Type),
    Call(Function),
}

#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Literal(Literal),
    /// Not yet bound; `true`: the first step is in double quotes and stands alone.
    Name(Vec<Step>, bool),
    /// A field of a CSV record, counted from 0.
    Field(usize),
    /// A path into a JSON record.
    Member(Vec<Step>),
    /// What a column of the result has.
    Alias(usize),
    /// The result of an aggregate function.
    Aggregate(usize),
    /// With as many parts as the operation has.
    Made(Operation, Vec<Expression>),
}

impl Expression {
    /// The expressions that it is made of.
    pub(crate) fn parts(&self) -> &[Expression] {
        if let Expression::Made(_, parts) = self { parts } else { &[] }
    }

    pub(crate) fn parts_mut(&mut self) -> &mut [Expression] {
        if let Expression::Made(_, parts) = self { parts } else { &mut [] }
    }

    /// Levels of the tree.
    pub(crate) fn height(&self) -> usize {
        1 + self.parts().iter().map(Expression::height).max().unwrap_or(0)
    }
}
