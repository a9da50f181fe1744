//! Operators, by binding power.

use super::{DEPTH_MAX, Parser};
use crate::ast::{Condition, Expression, Operation, Operator};
use crate::error::{Error, Kind};
use crate::lexer::Token;

// Weakest first.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARISON: u8 = 4;
const SUM: u8 = 5;
const PRODUCT: u8 = 6;
const POWER: u8 = 7;
const SIGN: u8 = 8;

fn binary(symbol: &str) -> Option<(Operator, u8)> {
    use Operator as O;
    Some(match symbol {
        "+" => (O::Add, SUM),
        "-" => (O::Subtract, SUM),
        "||" => (O::Concatenate, SUM),
        "*" => (O::Multiply, PRODUCT),
        "/" => (O::Divide, PRODUCT),
        "%" => (O::Modulo, PRODUCT),
        "^" => (O::Power, POWER),
        "=" => (O::Equal, COMPARISON),
        "!=" | "<>" => (O::NotEqual, COMPARISON),
        "<" => (O::Less, COMPARISON),
        "<=" => (O::LessOrEqual, COMPARISON),
        ">" => (O::Greater, COMPARISON),
        ">=" => (O::GreaterOrEqual, COMPARISON),
        _ => return None,
    })
}

impl Parser {
    pub(super) fn expression(&mut self) -> Result<Expression, Error> {
        self.operators(0)
    }

    /// An expression whose operators bind more strongly than `floor`.
    fn operators(&mut self, floor: u8) -> Result<Expression, Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(too_deep());
        }
        let mut left = self.prefix()?;
        loop {
            let next = self.operator(left, floor)?;
            match next {
                Ok(longer) if longer.height() > DEPTH_MAX => return Err(too_deep()),
                Ok(longer) => left = longer,
                Err(done) => {
                    self.depth -= 1;
                    return Ok(done);
                }
            }
        }
    }

    fn prefix(&mut self) -> Result<Expression, Error> {
        if self.take_word("not") {
            return Ok(Expression::Made(Operation::Not, vec![self.operators(NOT)?]));
        }
        if self.take_symbol("-") {
            return Ok(Expression::Made(Operation::Negate, vec![self.operators(SIGN)?]));
        }
        if self.take_symbol("+") {
            return self.operators(SIGN);
        }
        self.primary()
    }

    /// Parses one operator and its right side; returns the left side if there is none.
    fn operator(&mut self, left: Expression, floor: u8) -> Result<Result<Expression, Expression>, Error> {
        if let Token::Symbol(symbol) = *self.peek() {
            let Some((operator, power)) = binary(symbol).filter(|(_, power)| *power > floor) else {
                return Ok(Err(left));
            };
            self.at += 1;
            let right = self.operators(power)?;
            return Ok(Ok(Expression::Made(Operation::Binary(operator), vec![left, right])));
        }
        for (word, power, operation) in [("or", OR, Operation::Any), ("and", AND, Operation::All)] {
            if floor < power && self.is_word(word) {
                // All operands at once; otherwise a long chain would be measured again for each of them.
                let mut parts = vec![left];
                while self.take_word(word) {
                    parts.push(self.operators(power)?);
                }
                return Ok(Ok(Expression::Made(operation, parts)));
            }
        }
        if floor < COMPARISON { self.predicate(left) } else { Ok(Err(left)) }
    }

    /// `IS`, `LIKE`, `BETWEEN` and `IN`, with or without `NOT`.
    fn predicate(&mut self, left: Expression) -> Result<Result<Expression, Expression>, Error> {
        if self.take_word("is") {
            let negated = self.take_word("not");
            let condition = match self.peek() {
                Token::Word(word) if word.eq_ignore_ascii_case("null") => Condition::Null,
                Token::Word(word) if word.eq_ignore_ascii_case("missing") => Condition::Missing,
                Token::Word(word) if word.eq_ignore_ascii_case("true") => Condition::Bool(true),
                Token::Word(word) if word.eq_ignore_ascii_case("false") => Condition::Bool(false),
                _ => return Err(self.unexpected("NULL, MISSING, TRUE or FALSE")),
            };
            self.at += 1;
            return Ok(Ok(made(Operation::Is(condition), vec![left], negated)));
        }
        let begins = |token: &Token| {
            matches!(token, Token::Word(word)
                if ["like", "between", "in"].iter().any(|known| word.eq_ignore_ascii_case(known)))
        };
        let negated = self.is_word("not") && begins(self.ahead(1));
        if !negated && !begins(self.peek()) {
            return Ok(Err(left));
        }
        self.at += usize::from(negated);
        let mut parts = vec![left];
        let operation = if self.take_word("like") {
            parts.push(self.operators(COMPARISON)?);
            if self.take_word("escape") {
                parts.push(self.operators(COMPARISON)?);
            }
            Operation::Like
        } else if self.take_word("between") {
            parts.push(self.operators(COMPARISON)?);
            self.expect_word("and")?;
            parts.push(self.operators(COMPARISON)?);
            Operation::Between
        } else {
            self.expect_word("in")?;
            self.expect_symbol("(")?;
            parts.extend(self.list()?);
            Operation::In
        };
        Ok(Ok(made(operation, parts, negated)))
    }

    /// Expressions up to and including the closing parenthesis.
    pub(super) fn list(&mut self) -> Result<Vec<Expression>, Error> {
        let mut all = vec![self.expression()?];
        while self.take_symbol(",") {
            all.push(self.expression()?);
        }
        self.expect_symbol(")")?;
        Ok(all)
    }
}

fn made(operation: Operation, parts: Vec<Expression>, negated: bool) -> Expression {
    let made = Expression::Made(operation, parts);
    if negated { Expression::Made(Operation::Not, vec![made]) } else { made }
}

fn too_deep() -> Error {
    Error::new(Kind::UnsupportedSyntax, format!("The expression is nested deeper than {DEPTH_MAX} levels"))
}
