//! Parses the names of condition operators.

/// The relation between two ordered values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Relation {
    pub(crate) fn holds<T: PartialOrd>(self, value: &T, wanted: &T) -> bool {
        match self {
            Relation::Equal => value == wanted,
            Relation::Less => value < wanted,
            Relation::LessOrEqual => value <= wanted,
            Relation::Greater => value > wanted,
            Relation::GreaterOrEqual => value >= wanted,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    String,
    StringIgnoreCase,
    StringLike,
    Numeric(Relation),
    Date(Relation),
    Bool,
    Binary,
    Address,
    Arn,
    Null,
}

impl Comparison {
    pub(crate) fn has_wildcards(self) -> bool {
        matches!(self, Comparison::StringLike | Comparison::Arn)
    }
}

/// How several values of a request are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantifier {
    Single,
    All,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operator {
    pub comparison: Comparison,
    pub negated: bool,
    pub if_exists: bool,
    pub quantifier: Quantifier,
}

/// Name, comparison, and whether it is negated.
const OPERATORS: &[(&str, Comparison, bool)] = &[
    ("ArnEquals", Comparison::Arn, false),
    ("ArnLike", Comparison::Arn, false),
    ("ArnNotEquals", Comparison::Arn, true),
    ("ArnNotLike", Comparison::Arn, true),
    ("BinaryEquals", Comparison::Binary, false),
    ("Bool", Comparison::Bool, false),
    ("DateEquals", Comparison::Date(Relation::Equal), false),
    ("DateGreaterThan", Comparison::Date(Relation::Greater), false),
    ("DateGreaterThanEquals", Comparison::Date(Relation::GreaterOrEqual), false),
    ("DateLessThan", Comparison::Date(Relation::Less), false),
    ("DateLessThanEquals", Comparison::Date(Relation::LessOrEqual), false),
    ("DateNotEquals", Comparison::Date(Relation::Equal), true),
    ("IpAddress", Comparison::Address, false),
    ("NotIpAddress", Comparison::Address, true),
    ("Null", Comparison::Null, false),
    ("NumericEquals", Comparison::Numeric(Relation::Equal), false),
    ("NumericGreaterThan", Comparison::Numeric(Relation::Greater), false),
    ("NumericGreaterThanEquals", Comparison::Numeric(Relation::GreaterOrEqual), false),
    ("NumericLessThan", Comparison::Numeric(Relation::Less), false),
    ("NumericLessThanEquals", Comparison::Numeric(Relation::LessOrEqual), false),
    ("NumericNotEquals", Comparison::Numeric(Relation::Equal), true),
    ("StringEquals", Comparison::String, false),
    ("StringEqualsIgnoreCase", Comparison::StringIgnoreCase, false),
    ("StringLike", Comparison::StringLike, false),
    ("StringNotEquals", Comparison::String, true),
    ("StringNotEqualsIgnoreCase", Comparison::StringIgnoreCase, true),
    ("StringNotLike", Comparison::StringLike, true),
];

impl Operator {
    /// `None` for an unknown operator.
    pub(crate) fn parse(name: &str) -> Option<Operator> {
        let (quantifier, name) = match name.split_once(':') {
            None => (Quantifier::Single, name),
            Some((all, name)) if all.eq_ignore_ascii_case("ForAllValues") => (Quantifier::All, name),
            Some((any, name)) if any.eq_ignore_ascii_case("ForAnyValue") => (Quantifier::Any, name),
            Some(_) => return None,
        };
        let suffix = "IfExists";
        let at = name.len().checked_sub(suffix.len()).filter(|at| name.is_char_boundary(*at));
        let (name, if_exists) = match at.map(|at| name.split_at(at)) {
            Some((name, end)) if end.eq_ignore_ascii_case(suffix) => (name, true),
            _ => (name, false),
        };
        let (_, comparison, negated) = OPERATORS.iter().find(|(own, ..)| own.eq_ignore_ascii_case(name))?;
        // `NullIfExists` and `ForAllValues:Null` would have no meaning.
        let senseless = *comparison == Comparison::Null && (if_exists || quantifier != Quantifier::Single);
        (!senseless).then_some(Operator { comparison: *comparison, negated: *negated, if_exists, quantifier })
    }

    /// Whether it admits only the listed values, and fails for an absent key.
    pub(crate) fn confines(self) -> bool {
        let names = matches!(
            self.comparison,
            Comparison::String
                | Comparison::StringIgnoreCase
                | Comparison::StringLike
                | Comparison::Arn
                | Comparison::Address
        );
        names && !self.negated && !self.if_exists && self.quantifier != Quantifier::All
    }
}
