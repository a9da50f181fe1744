//! Operands: names, literals, parentheses, CASE and calls.

use super::{Parser, is_reserved};
use crate::ast::{Aggregate, AggregateFunction, Expression, Literal, Operation, Step, Type};
use crate::error::{Error, Kind};
use crate::lexer::Token;
use crate::timestamp::Timestamp;

impl Parser {
    pub(super) fn primary(&mut self) -> Result<Expression, Error> {
        let token = self.peek().clone();
        self.at += 1;
        let literal = match token {
            Token::Integer(number) => Literal::Integer(number),
            Token::Float(number) => Literal::Float(number),
            Token::Text(text) => Literal::Text(text),
            Token::Timestamp(text) => {
                let moment = Timestamp::parse(&text);
                Literal::Timestamp(moment.ok_or_else(|| {
                    Error::new(
                        Kind::LexerLiteral,
                        format!("{:?} is no timestamp", text.chars().take(64).collect::<String>()),
                    )
                })?)
            }
            Token::Quoted(name) => return self.name(name, true),
            Token::Symbol("(") => {
                let inner = self.expression()?;
                self.expect_symbol(")")?;
                return Ok(inner);
            }
            Token::Word(word) => return self.word(word),
            Token::Symbol(_) | Token::End => {
                self.at -= 1;
                return Err(self.unexpected("an expression"));
            }
        };
        Ok(Expression::Literal(literal))
    }

    fn word(&mut self, word: String) -> Result<Expression, Error> {
        let lower = word.to_ascii_lowercase();
        let literal = match lower.as_str() {
            "null" => Literal::Null,
            "missing" => Literal::Missing,
            "true" => Literal::Bool(true),
            "false" => Literal::Bool(false),
            "case" => return self.case(),
            _ if is_reserved(&lower) => {
                self.at -= 1;
                return Err(self.unexpected("an expression"));
            }
            _ if self.take_symbol("(") => return self.call(&lower),
            _ => return self.name(word, false),
        };
        Ok(Expression::Literal(literal))
    }

    fn name(&mut self, name: String, quoted: bool) -> Result<Expression, Error> {
        let mut steps = vec![Step::Key { name, exact: quoted }];
        steps.extend(self.steps()?);
        if steps.contains(&Step::Every) {
            return Err(self.unsupported("* within a path that is not that of FROM"));
        }
        let alone = quoted && steps.len() == 1;
        Ok(Expression::Name(steps, alone))
    }

    fn case(&mut self) -> Result<Expression, Error> {
        let mut parts = Vec::new();
        let has_value = !self.is_word("when");
        if has_value {
            parts.push(self.expression()?);
        }
        self.expect_word("when")?;
        loop {
            parts.push(self.expression()?);
            self.expect_word("then")?;
            parts.push(self.expression()?);
            if !self.take_word("when") {
                break;
            }
        }
        parts.push(if self.take_word("else") { self.expression()? } else { Expression::Literal(Literal::Null) });
        self.expect_word("end")?;
        Ok(Expression::Made(if has_value { Operation::Match } else { Operation::Case }, parts))
    }

    /// The rest of a call, after a name and `(`.
    fn call(&mut self, name: &str) -> Result<Expression, Error> {
        if let Some(function) = aggregate(name) {
            return self.aggregate(function);
        }
        if let Some(wanted) = type_named(name) {
            let value = self.expression()?;
            self.expect_symbol(")")?;
            return Ok(Expression::Made(Operation::Cast(wanted), vec![value]));
        }
        match name {
            "cast" => self.cast(),
            _ => self.function(name),
        }
    }

    fn cast(&mut self) -> Result<Expression, Error> {
        let value = self.expression()?;
        self.expect_word("as")?;
        let wanted = match self.peek() {
            Token::Word(word) => type_named(&word.to_ascii_lowercase()),
            _ => None,
        };
        let wanted = wanted.ok_or_else(|| self.unexpected("a type"))?;
        self.at += 1;
        // A length or precision, which has no effect.
        if self.take_symbol("(") {
            while matches!(self.peek(), Token::Integer(_) | Token::Symbol(",")) {
                self.at += 1;
            }
            self.expect_symbol(")")?;
        }
        self.expect_symbol(")")?;
        Ok(Expression::Made(Operation::Cast(wanted), vec![value]))
    }

    fn aggregate(&mut self, function: AggregateFunction) -> Result<Expression, Error> {
        if self.in_aggregate || !self.in_columns {
            let message = "An aggregate function stands in the list of columns, and in no other one";
            return Err(Error::new(Kind::UnsupportedStructure, message));
        }
        let argument = if function == AggregateFunction::Count && self.take_symbol("*") {
            None
        } else {
            self.in_aggregate = true;
            let argument = self.expression()?;
            self.in_aggregate = false;
            Some(argument)
        };
        self.expect_symbol(")")?;
        self.aggregates.push(Aggregate { function, argument });
        Ok(Expression::Aggregate(self.aggregates.len() - 1))
    }
}

fn aggregate(name: &str) -> Option<AggregateFunction> {
    Some(match name {
        "avg" => AggregateFunction::Avg,
        "count" => AggregateFunction::Count,
        "max" => AggregateFunction::Max,
        "min" => AggregateFunction::Min,
        "sum" => AggregateFunction::Sum,
        _ => return None,
    })
}

fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" | "boolean" => Type::Bool,
        "decimal" | "double" | "float" | "numeric" | "real" => Type::Float,
        "bigint" | "int" | "integer" | "smallint" => Type::Integer,
        "char" | "character" | "string" | "text" | "varchar" => Type::Text,
        "timestamp" => Type::Timestamp,
        _ => return None,
    })
}
