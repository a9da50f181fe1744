//! Writes result records as CSV.

use crate::csv::CsvOutput;

/// The fields of one record.
#[derive(Debug)]
pub(crate) struct Row<'o> {
    out: &'o mut String,
    format: &'o CsvOutput,
    start: usize,
    is_first: bool,
}

impl<'o> Row<'o> {
    pub(crate) fn begin(out: &'o mut String, format: &'o CsvOutput) -> Row<'o> {
        let start = out.len();
        Row { out, format, start, is_first: true }
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len() - self.start
    }

    pub(crate) fn value(&mut self, text: &str) {
        let CsvOutput { record_delimiter, field_delimiter, quote, escape, quote_always } = self.format;
        if !std::mem::take(&mut self.is_first) {
            self.out.push_str(field_delimiter);
        }
        let holds = |part: &String| !part.is_empty() && text.contains(part.as_str());
        let needs = holds(field_delimiter) || holds(record_delimiter) || holds(quote) || text.contains(['\r', '\n']);
        if quote.is_empty() || !(needs || *quote_always) {
            self.out.push_str(text);
            return;
        }
        self.out.push_str(quote);
        let mut rest = text;
        while let Some(at) = rest.find(quote.as_str()) {
            self.out.push_str(&rest[..at]);
            self.out.push_str(escape);
            self.out.push_str(quote);
            rest = &rest[at + quote.len()..];
        }
        self.out.push_str(rest);
        self.out.push_str(quote);
    }

    pub(crate) fn end(self) {
        self.out.push_str(&self.format.record_delimiter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: &[&str], format: &CsvOutput) -> String {
        let mut out = String::new();
        let mut row = Row::begin(&mut out, format);
        fields.iter().for_each(|field| row.value(field));
        row.end();
        out
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let format = CsvOutput::default();
        assert_eq!(line(&["a", "", "b,c", "d\"e", "f\ng"], &format), "a,,\"b,c\",\"d\"\"e\",\"f\ng\"\n");
        let always = CsvOutput { quote_always: true, escape: "\\".into(), field_delimiter: ";".into(), ..format };
        assert_eq!(line(&["a", "", "d\"e"], &always), "\"a\";\"\";\"d\\\"e\"\n");
        let never = CsvOutput { quote: String::new(), ..always };
        assert_eq!(line(&["a;", "b"], &never), "a;;b\n");
    }
}
