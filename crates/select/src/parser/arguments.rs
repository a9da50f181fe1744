//! Function calls; some have keywords between their arguments (`SUBSTRING(x FROM 2 FOR 3)`).

use super::Parser;
use crate::ast::{Expression, Function, Literal, Operation, Side};
use crate::error::{Error, Kind};
use crate::lexer::Token;
use crate::timestamp::Part;

impl Parser {
    /// The function of this name; its `(` is already consumed.
    pub(super) fn function(&mut self, name: &str) -> Result<Expression, Error> {
        match name {
            "extract" => return self.extract(),
            "trim" => return self.trim(),
            "substring" | "substr" => return self.substring(),
            "date_add" | "date_diff" => {
                let part = self.part()?;
                self.expect_symbol(",")?;
                let function = if name == "date_add" { Function::DateAdd(part) } else { Function::DateDiff(part) };
                return self.checked(function, name, 2..=2);
            }
            "utcnow" => {
                self.expect_symbol(")")?;
                return Ok(called(Function::UtcNow, Vec::new()));
            }
            _ => {}
        }
        let (function, count) = match name {
            "char_length" | "character_length" => (Function::CharLength, 1..=1),
            "coalesce" => (Function::Coalesce, 1..=usize::MAX),
            "lower" => (Function::Lower, 1..=1),
            "nullif" => (Function::NullIf, 2..=2),
            "size" => (Function::Size, 1..=1),
            "to_string" => (Function::ToText, 2..=2),
            "to_timestamp" => (Function::ToTimestamp, 1..=1),
            "upper" => (Function::Upper, 1..=1),
            _ => {
                let name: String = name.chars().take(64).collect();
                return Err(Error::new(Kind::UnsupportedFunction, format!("There is no function {name}")));
            }
        };
        self.checked(function, name, count)
    }

    /// The argument list, with its length checked.
    fn checked(
        &mut self,
        function: Function,
        name: &str,
        count: std::ops::RangeInclusive<usize>,
    ) -> Result<Expression, Error> {
        let arguments = self.list()?;
        if !count.contains(&arguments.len()) {
            let message = format!("{name} does not take {} arguments", arguments.len());
            return Err(Error::new(Kind::InvalidArguments, message));
        }
        Ok(called(function, arguments))
    }

    fn part(&mut self) -> Result<Part, Error> {
        let word = match self.peek() {
            Token::Word(word) => word.to_ascii_lowercase(),
            _ => return Err(self.unexpected("a part of a date")),
        };
        let part = match word.as_str() {
            "year" => Part::Year,
            "quarter" => Part::Quarter,
            "month" => Part::Month,
            "week" => Part::Week,
            "day" => Part::Day,
            "hour" => Part::Hour,
            "minute" => Part::Minute,
            "second" => Part::Second,
            "timezone_hour" => Part::TimezoneHour,
            "timezone_minute" => Part::TimezoneMinute,
            _ => return Err(self.unexpected("a part of a date")),
        };
        self.at += 1;
        Ok(part)
    }

    fn extract(&mut self) -> Result<Expression, Error> {
        let part = self.part()?;
        self.expect_word("from")?;
        let value = self.expression()?;
        self.expect_symbol(")")?;
        Ok(called(Function::Extract(part), vec![value]))
    }

    /// `TRIM([BOTH | LEADING | TRAILING] [characters] FROM text)` or `TRIM(text)`.
    fn trim(&mut self) -> Result<Expression, Error> {
        let sides = [("both", Side::Both), ("leading", Side::Leading), ("trailing", Side::Trailing)];
        let side = sides.into_iter().find(|(word, _)| self.take_word(word)).map(|(_, side)| side);
        let space = || Expression::Literal(Literal::Text(" ".to_owned()));
        let first = if self.is_word("from") { space() } else { self.expression()? };
        let arguments = if self.take_word("from") {
            vec![self.expression()?, first]
        } else if side.is_none() {
            vec![first, space()]
        } else {
            return Err(self.unexpected("FROM"));
        };
        self.expect_symbol(")")?;
        Ok(called(Function::Trim(side.unwrap_or(Side::Both)), arguments))
    }

    fn substring(&mut self) -> Result<Expression, Error> {
        let mut arguments = vec![self.expression()?];
        let words = self.take_word("from");
        if !words {
            self.expect_symbol(",")?;
        }
        arguments.push(self.expression()?);
        if (words && self.take_word("for")) || (!words && self.take_symbol(",")) {
            arguments.push(self.expression()?);
        }
        self.expect_symbol(")")?;
        Ok(called(Function::Substring, arguments))
    }
}

fn called(function: Function, arguments: Vec<Expression>) -> Expression {
    Expression::Made(Operation::Call(function), arguments)
}
