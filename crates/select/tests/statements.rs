//! Statements and their results: a table per format, and independence of how an object is split.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

use margay_select::{
    Compression, CsvInput, CsvOutput, Dialect, Error, Header, InputFormat, Kind, OutputFormat, Request, Selection, Step,
};
use proptest::prelude::*;

fn csv(header: Header) -> InputFormat {
    InputFormat::Csv(CsvInput { header, ..CsvInput::default() })
}

fn request(expression: &str, input: InputFormat, dialect: Dialect) -> Request {
    Request {
        expression: expression.to_owned(),
        compression: Compression::None,
        input,
        output: OutputFormat::Csv(CsvOutput::default()),
        dialect,
        now: 1_000_000_000,
    }
}

fn run(request: Request, object: &[u8], size: usize) -> Result<String, Error> {
    let mut selection = Selection::new(request)?;
    let mut pieces = object.chunks(size);
    let mut all = String::new();
    loop {
        match selection.step(&mut all)? {
            Step::Done => return Ok(all),
            Step::Output => panic!("results of tests are short"),
            Step::Input => match pieces.next() {
                Some(piece) => selection.push(piece),
                None => selection.end(),
            },
        }
    }
}

fn check(object: &str, input: &InputFormat, dialect: Dialect, cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        for size in [1, 5, object.len()] {
            let given = run(request(expression, input.clone(), dialect), object.as_bytes(), size);
            assert_eq!(given.as_deref(), Ok(*expected), "{expression} in pieces of {size}");
        }
    }
}

/// The value of an expression.
fn value(expression: &str, dialect: Dialect) -> Result<String, Kind> {
    let statement = format!("select {expression} from s3object");
    let made = run(request(&statement, csv(Header::None), dialect), b"x\n", 9);
    made.map(|line| line.trim_end_matches('\n').to_owned()).map_err(|error| error.kind)
}

const PEOPLE: &str = "name,age,city\nann,34,Oslo\nbob,,Rome\n\"cy, d\",7,\n";

#[test]
fn csv_with_a_header() {
    check(
        PEOPLE,
        &csv(Header::Use),
        Dialect::Aws,
        &[
            ("SELECT * FROM S3Object", "ann,34,Oslo\nbob,,Rome\n\"cy, d\",7,\n"),
            ("select s.name from s3object s where s.city = 'Rome'", "bob\n"),
            ("select s.\"name\", S.CITY from S3Object as s limit 1", "ann,Oslo\n"),
            ("select upper(name) as name from s3object s where name like 'a%'", "ANN\n"),
            ("select _2 from s3object where age > 9", "34\n"),
            ("select count(*), sum(cast(age as int)) from s3object where age <> ''", "2,41\n"),
            ("select min(name), max(age), avg(age) from s3object where age <> ''", "ann,34,20.5\n"),
            ("select sum(age) + 1 as a from s3object where name = 'nobody'", "\n"),
            ("select name from s3object where age is null", ""),
            ("select name from s3object where age = ''", "bob\n"),
            ("select _9 from s3object limit 2", "\n\n"),
            ("select name from s3object limit 0", ""),
        ],
    );
    let absent = run(request("select nine from s3object", csv(Header::Use), Dialect::Aws), PEOPLE.as_bytes(), 9);
    assert_eq!(absent.unwrap_err().message, "alias {nine} or column not exist in schema");
    check(PEOPLE, &csv(Header::Ignore), Dialect::Aws, &[("select _1 from s3object limit 1", "ann\n")]);
    check(PEOPLE, &csv(Header::None), Dialect::Aws, &[("select _1 from s3object limit 1", "name\n")]);
}

#[test]
fn csv_as_ceph_has_it() {
    check(
        "1,2,\n3,3,\n",
        &csv(Header::None),
        Dialect::Ceph,
        &[
            ("select _3, _9 from stdin limit 1;", "null,null\n"),
            ("select int(_1) as a1, a1+a2 as a3, int(_2) as a2 from s3object where a3 > 3;", "3,6,3\n"),
            ("select count(0) from s3object where nullif(_1,_2) is null;", "1\n"),
            ("select (int(_1) in (1,2)) as a1 from s3object where a1 = true;", "true\n"),
            ("select \"true\"from s3object where _1 like \"[0-2]\";", "true\n"),
            ("select count(*) from s3object where not (nullif(_1,_2) is null) = true;", "1\n"),
            ("select case _1 when _2 then \"same\" else \"other\" end from s3object;", "other\nsame\n"),
        ],
    );
    let header = csv(Header::Use);
    let double = run(request("select a as b, b from s3object", header, Dialect::Ceph), b"a,b\n1,2\n", 9);
    assert_eq!(double.unwrap_err().message, "multiple definition of column {b} as schema-column and alias");
    let cyclic = "select _1 as a1, a1+a4 as a3, a5+a1 as a4, int(_3)+a3 as a5 from s3object";
    let message = run(request(cyclic, csv(Header::None), Dialect::Ceph), b"1\n", 9).unwrap_err().message;
    assert_eq!(message, "number of calls exceed maximum size, probably a cyclic reference to alias");
    // Each column doubles the last one, so this ends only if each is evaluated once.
    let mut doubling = "select 1 as a0".to_owned();
    for index in 1..50 {
        doubling += &format!(", a{0}+a{0} as a{index}", index - 1);
    }
    let row = run(request(&(doubling + " from s3object"), csv(Header::None), Dialect::Ceph), b"x\n", 9).unwrap();
    assert!(row.ends_with(&format!(",{}\n", 1_i64 << 49)), "{row}");
}

#[test]
fn json_documents_and_lines() {
    let document = r#"{"root":[{"a":1,"b":{"c":[10,20]},"n":null},{"a":2.5,"B":"x,y"}]}"#;
    check(
        document,
        &InputFormat::Json,
        Dialect::Aws,
        &[
            ("select count(*) from s3object[*]", "1\n"),
            ("select count(*) from s3object[*].root", "2\n"),
            ("select s.a from s3object[*].root[*] s", "1\n2.5\n"),
            ("select s.b.c[1], s.b from s3object[*].root s", "20,\"{\"\"c\"\":[10,20]}\"\n,\"x,y\"\n"),
            ("select _1.a from s3object[*].root where _1.a > 1", "2.5\n"),
            ("select s.a from s3object[*].root s where s.n is null", "1\n2.5\n"),
            ("select s.a from s3object[*].root s where s.n is missing", "2.5\n"),
            ("select size(s.b.c) from s3object[*].root[0] s", "2\n"),
            ("select * from s3object[*].root[1]", "2.5,\"x,y\"\n"),
            ("select sum(s.a), max(s.a) from s3object[*].root s", "3.5,2.5\n"),
            ("select s['a'] from s3object[*]['root'] s limit 1", "1\n"),
        ],
    );
    let lines = "{\"b\":1,\"a\":\"q\\\"\"}\n{\"b\":null}\n";
    let as_json = |expression: &str, dialect| {
        let output = OutputFormat::Json { record_delimiter: "\n".to_owned() };
        run(Request { output, ..request(expression, InputFormat::Json, dialect) }, lines.as_bytes(), 3).unwrap()
    };
    assert_eq!(as_json("select * from s3object", Dialect::Aws), "{\"b\":1,\"a\":\"q\\\"\"}\n{\"b\":null}\n");
    assert_eq!(
        as_json("select s.a, s.b+1, s.b as c from s3object s", Dialect::Aws),
        concat!("{\"a\":\"q\\\"\",\"_2\":2,\"c\":1}\n", "{\"_2\":null,\"c\":null}\n")
    );
    assert_eq!(as_json("select count(*), min(_1.b) from s3object", Dialect::Ceph), "2,1\n");
}

#[test]
fn expressions_have_their_values() {
    for (expression, expected) in [
        ("1+2*3", "7"),
        ("(1+2)*3 - -4", "13"),
        ("7/2", "3"),
        ("7/2.0", "3.5"),
        ("7%4", "3"),
        ("2^3", "8.0"),
        ("1 < 2 = true", "true"),
        ("'a' || 1 || 'b'", "a1b"),
        ("'b' between 'a' and 'c' and not 2 between 3 and 4", "true"),
        ("1 in (2, null)", ""),
        ("1 not in (2, 3)", "true"),
        ("null and false", "false"),
        ("null or true", "true"),
        ("not null", ""),
        ("null = null", ""),
        ("null is null and missing is missing and 1 is not null", "true"),
        ("'10' > 9", "true"),
        ("'x' > 9", ""),
        ("'x' != 9", "true"),
        ("coalesce(null, missing, 3)", "3"),
        ("nullif(1, 2)", "1"),
        ("case when 1 > 2 then 'a' when 2 > 1 then 'b' end", "b"),
        ("case 3 when 1 then 'a' end", ""),
        ("cast('12' as int) + cast('1.5' as float)", "13.5"),
        ("int('3.9')", "3"),
        ("cast(0 as bool)", "false"),
        ("cast(1.5 as string) || 'x'", "1.5x"),
        ("cast('7' as decimal(10, 2))", "7.0"),
        ("char_length('héé')", "3"),
        ("lower('ÀB') || upper('é')", "àbÉ"),
        ("substring('123456', 2)", "23456"),
        ("substring('123456', 2, 3)", "234"),
        ("substring('123456' from 0 for 3)", "12"),
        ("substring('12', 5, 3)", ""),
        ("trim('  a ') || '.'", "a."),
        ("trim(leading '0' from '0010')", "10"),
        ("trim(both '12' from '1112x22')", "x"),
        ("trim(trailing from ' a ') || '.'", "\" a.\"".trim_matches('"')),
        ("extract(year from to_timestamp('2010-05-06T'))", "2010"),
        ("extract(timezone_hour from to_timestamp('2010-05-06T01:02:03+05:00'))", "5"),
        ("to_string(`1969-07-20T20:18Z`, 'MMMM d, y')", "\"July 20, 1969\""),
        ("date_add(month, 5, `2010-01-31T`)", "2010-06-30T00:00:00Z"),
        ("date_diff(hour, utcnow(), date_add(day, 1, utcnow()))", "24"),
        ("utcnow()", "2001-09-09T01:46:40Z"),
        ("to_timestamp('20010909T014640Z') = utcnow()", "true"),
        ("'50%' like '5_\\%' escape '\\'", "true"),
        ("'it''s' like '%''s'", "true"),
    ] {
        assert_eq!(value(expression, Dialect::Aws), Ok(expected.to_owned()), "{expression}");
    }
}

#[test]
fn what_cannot_be_is_an_error_of_its_kind() {
    let deep = format!("{}1{}", "(".repeat(200), ")".repeat(200));
    let long = vec!["1"; 200].join("+");
    for (expression, kind) in [
        ("1 +", Kind::UnexpectedToken),
        ("_1 like 'a' like", Kind::UnexpectedToken),
        ("(1", Kind::UnexpectedToken),
        ("foo(1)", Kind::UnsupportedFunction),
        ("char_length('a', 'b')", Kind::InvalidArguments),
        ("sum(sum(1))", Kind::UnsupportedStructure),
        ("count(*), _1", Kind::UnsupportedStructure),
        ("distinct _1", Kind::UnsupportedSyntax),
        ("'x' + 1", Kind::CastFailed),
        ("cast('x' as int)", Kind::CastFailed),
        ("cast(1e300 as int)", Kind::CastFailed),
        ("1/0", Kind::InvalidArguments),
        ("1/0.0", Kind::InvalidArguments),
        ("9223372036854775807 + 1", Kind::IntegerOverflow),
        ("to_string(utcnow(), 'QQ')", Kind::TimestampPattern),
        ("1 like 'a'", Kind::InvalidArguments),
        ("'a' like 'b' escape 'cd'", Kind::InvalidArguments),
        ("nine", Kind::Processing),
        (deep.as_str(), Kind::UnsupportedSyntax),
        (long.as_str(), Kind::UnsupportedSyntax),
    ] {
        assert_eq!(value(expression, Dialect::Aws), Err(kind), "{expression}");
    }
    for (statement, kind) in [
        ("select 1", Kind::UnexpectedToken),
        ("select 1 from other", Kind::UnexpectedToken),
        ("select 1 from s3object group by 1", Kind::UnsupportedSyntax),
        ("select 1 from s3object s, s.x", Kind::UnsupportedStructure),
        ("select 1 from s3object[*].a", Kind::UnsupportedStructure),
        ("select 1 from s3object where count(*) > 1", Kind::UnsupportedStructure),
        ("select 1 from s3object; select 2", Kind::UnexpectedToken),
        ("delete from s3object", Kind::UnexpectedToken),
    ] {
        let outcome = run(request(statement, csv(Header::None), Dialect::Aws), b"x\n", 9);
        assert_eq!(outcome.map_err(|error| error.kind), Err(kind), "{statement}");
    }
    // As many terms as a program may write.
    let many = vec!["_1 = 'y'"; 3000].join(" or ");
    assert_eq!(value(&many, Dialect::Aws), Ok("false".to_owned()));
}

#[test]
fn what_one_record_makes_is_bounded() {
    let record = "x".repeat(1 << 19);
    for columns in [["_1"; 3].join(","), ["_1"; 3].join("||"), vec!["upper(_1)"; 50].join("=")] {
        let statement = format!("select {columns} from s3object");
        let outcome = run(request(&statement, csv(Header::None), Dialect::Aws), record.as_bytes(), 1 << 16);
        assert_eq!(outcome.map_err(|error| error.kind), Err(Kind::RecordTooLong), "{}", columns.len());
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn gzip_is_read_member_by_member() {
    let statement = "select count(*), max(_1) from s3object";
    let zipped = Request { compression: Compression::Gzip, ..request(statement, csv(Header::None), Dialect::Aws) };
    let object = [gzip(b"1\n2\n"), gzip("7\n".repeat(300_000).as_bytes())].concat();
    for size in [1, 100, object.len()] {
        assert_eq!(run(zipped.clone(), &object, size).as_deref(), Ok("300002,7\n"));
    }
    for damaged in [&object[..object.len() - 4], b"1\n2\n".as_slice()] {
        let outcome = run(zipped.clone(), damaged, 64).map_err(|error| error.kind);
        assert_eq!(outcome, Err(Kind::InvalidCompression));
    }
}

#[test]
fn ranges_share_an_object() {
    for size in 1..=PEOPLE.len() as u64 {
        let mut all = String::new();
        let mut start = 0;
        while start < PEOPLE.len() as u64 {
            let mut selection =
                Selection::new(request("select name from s3object", csv(Header::Use), Dialect::Aws)).unwrap();
            let from = if start == 0 {
                0
            } else {
                selection.push(PEOPLE.as_bytes());
                assert!(selection.read_header().unwrap());
                start as usize - 1
            };
            selection.restrict(start, start + size - 1);
            selection.push(&PEOPLE.as_bytes()[from..]);
            selection.end();
            assert_eq!(selection.step(&mut all).unwrap(), Step::Done);
            start += size;
        }
        assert_eq!(all, "ann\nbob\n\"cy, d\"\n", "in ranges of {size}");
    }
}

proptest! {
    /// The result does not depend on how an object is split, for any text and the most sensitive statements.
    #[test]
    fn pieces_change_nothing(
        object in "[ab,\"\\\\\n\r#1]{0,60}",
        sizes in proptest::collection::vec(1..7_usize, 1..20),
        header in 0..3_usize,
        dialect in 0..2_usize,
    ) {
        let header = [Header::None, Header::Ignore, Header::Use][header];
        let dialect = [Dialect::Aws, Dialect::Ceph][dialect];
        let input = InputFormat::Csv(CsvInput { header, escape: Some(b'\\'), comment: Some(b'#'), ..CsvInput::default() });
        for statement in ["select * from s3object", "select _2, upper(_1) from s3object", "select count(*), max(_1) from s3object"] {
            let whole = run(request(statement, input.clone(), dialect), object.as_bytes(), object.len().max(1));
            let mut selection = match Selection::new(request(statement, input.clone(), dialect)) {
                Ok(selection) => selection,
                Err(error) => { prop_assert_eq!(whole, Err(error)); continue; }
            };
            let (mut rest, mut all, mut sizes) = (object.as_bytes(), String::new(), sizes.iter().cycle());
            let outcome = loop {
                match selection.step(&mut all) {
                    Ok(Step::Input) if rest.is_empty() => selection.end(),
                    Ok(Step::Input) => {
                        let (piece, more) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
                        selection.push(piece);
                        rest = more;
                    }
                    Ok(_) => break Ok(all),
                    Err(error) => break Err(error),
                }
            };
            prop_assert_eq!(outcome, whole);
        }
    }

    #[test]
    fn no_statement_panics(words in proptest::collection::vec(prop::sample::select(vec![
        "select", "from", "s3object", "where", "_1", "(", ")", ",", "case", "when", "then", "end", "and", "not", "is", "null", "like",
        "'a'", "1", "+", "-", "count(", "cast(", "as", "int", "[", "]", "*", ".", "between", "in", "\"q\"", "limit", ";", "trim(", "substring(",
    ]), 0..16)) {
        for statement in [words.join(" "), format!("select {} from s3object", words.join(" "))] {
            let _ = run(request(&statement, csv(Header::None), Dialect::Ceph), b"a,b\n", 2);
        }
    }
}

#[test]
fn an_error_leaves_whole_records() {
    let mut selection =
        Selection::new(request("select _1, int(_2) from s3object", csv(Header::None), Dialect::Aws)).unwrap();
    selection.push(b"a,1\nb,x\nc,3\n");
    let mut out = String::new();
    assert_eq!(selection.step(&mut out).unwrap_err().kind, Kind::CastFailed);
    assert_eq!(out, "a,1\n");
}

#[test]
fn results_are_finite_numbers() {
    for expression in ["1e308 * 10", "0.0 - 1e308 * 10", "10 ^ 400", "(0 - 8) ^ 0.5", "0 ^ (0 - 1)"] {
        assert_eq!(value(expression, Dialect::Aws), Err(Kind::InvalidArguments), "{expression}");
    }
    assert_eq!(value("cast(0.0 - 9223372036854775808.0 as int)", Dialect::Aws).unwrap(), i64::MIN.to_string());
    assert_eq!(value("cast(9223372036854775808.0 as int)", Dialect::Aws), Err(Kind::CastFailed));
}

/// The result of columns over a record with one long field.
fn of_long_text(columns: &str, len: usize) -> Result<String, Kind> {
    let object = "a".repeat(len) + "\n";
    let statement = format!("select {columns} from s3object");
    run(request(&statement, csv(Header::None), Dialect::Aws), object.as_bytes(), len + 1).map_err(|error| error.kind)
}

#[test]
fn the_work_for_one_record_is_bounded() {
    let repeated = vec!["_1 = _1"; 1000].join(" and ");
    assert_eq!(of_long_text(&repeated, 1 << 20), Err(Kind::RecordTooLong));
    assert_eq!(of_long_text(&repeated, 1 << 10), Ok("true\n".to_owned()));
    let many = format!("char_length(coalesce({}))", vec!["max(_1)"; 20].join(","));
    assert_eq!(of_long_text(&many, 1 << 20), Err(Kind::RecordTooLong));
    assert_eq!(of_long_text(&many, 1 << 10), Ok("1024\n".to_owned()));
}

/// Quadratic time would take minutes at these sizes.
#[test]
fn long_statements_over_many_columns_are_read_at_once() {
    let names: Vec<String> = (0..16_000).map(|index| format!("c{index}")).collect();
    let object = names.join(",") + "\n" + &vec!["1"; names.len()].join(",") + "\n";
    let condition = vec!["C15999 = 2"; 15_000].join(" or ");
    let statement = format!("select count(*) from s3object where {condition}");
    let counted = run(request(&statement, csv(Header::Use), Dialect::Aws), object.as_bytes(), object.len());
    assert_eq!(counted.as_deref(), Ok("0\n"));
}
