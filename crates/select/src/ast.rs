//! The syntax tree of a statement.
//!
//! Why:        parser, binding and evaluator share one tree.
//! Invariants: T1 a tree is at most `parser::DEPTH_MAX` high, so recursion over it is bounded.

use crate::timestamp::{Part, Timestamp};

/// `SELECT columns FROM path WHERE filter LIMIT limit`.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub columns: Columns,
    /// The path from the document to its records, without the leading `S3Object[*]`.
    pub from: Vec<Step>,
    /// The table's alias besides `s3object`.
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
    /// The key that the JSON output uses.
    pub name: String,
}

/// One aggregate; `Expression::Aggregate` refers to its value.
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

/// A step of a path in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key {
        name: String,
        /// Quoted: matching is case-sensitive.
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

/// How an expression combines its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Not,
    Negate,
    /// Left and right operand.
    Binary(Operator),
    All,
    Any,
    /// Text, pattern, and optionally the escape character.
    Like,
    /// Value, lower and upper bound.
    Between,
    /// A value and the list that it is compared with.
    In,
    Is(Condition),
    /// Conditions and results in turn, then the ELSE value.
    Case,
    /// A value, then values and results in turn, then the ELSE value.
    Match,
    Cast(Type),
    Call(Function),
}

#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Literal(Literal),
    /// Not yet bound; `true`: a single step in double quotes.
    Name(Vec<Step>, bool),
    /// A field of a CSV record, counted from 0.
    Field(usize),
    /// A path into a JSON record.
    Member(Vec<Step>),
    /// The value of a result column.
    Alias(usize),
    /// The result of an aggregate function.
    Aggregate(usize),
    /// With as many parts as the operation takes.
    Made(Operation, Vec<Expression>),
}

impl Expression {
    /// The operands.
    pub(crate) fn parts(&self) -> &[Expression] {
        if let Expression::Made(_, parts) = self { parts } else { &[] }
    }

    pub(crate) fn parts_mut(&mut self) -> &mut [Expression] {
        if let Expression::Made(_, parts) = self { parts } else { &mut [] }
    }

    /// Height of the tree.
    pub(crate) fn height(&self) -> usize {
        1 + self.parts().iter().map(Expression::height).max().unwrap_or(0)
    }
}
