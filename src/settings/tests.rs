//! Precedence, error messages and the table itself.

use super::parse::{Value, parse, parse_bytes, show_bytes};
use super::resolve::{Found, Source, resolve, stray_variables};
use super::table::{Kind, SETTINGS};
use super::{Settings, file};

fn one(found: &Found, name: &str) -> (String, Source) {
    let values = resolve(found).unwrap();
    let found = values.iter().find(|value| value.setting.name == name).unwrap();
    (found.value.show(found.setting.kind), found.source.clone())
}

fn flag(name: &str, text: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), text.to_owned())]
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let mut found = Found::default();
    assert_eq!(one(&found, "address"), ("127.0.0.1:9000".to_owned(), Source::Default));
    found.file = Some(("m.toml".to_owned(), "\naddress = \"a:1\"\n".to_owned()));
    assert_eq!(one(&found, "address"), ("a:1".to_owned(), Source::File { path: "m.toml".to_owned(), line: 2 }));
    found.environment.insert("MARGAY_ADDRESS".to_owned(), "b:2".to_owned());
    assert_eq!(one(&found, "address"), ("b:2".to_owned(), Source::Environment("MARGAY_ADDRESS".to_owned())));
    found.flags = flag("address", "c:3");
    assert_eq!(one(&found, "address"), ("c:3".to_owned(), Source::Flag));
}

#[test]
fn passwords_of_targets_are_not_shown() {
    for (given, shown) in [
        ("a=http://h/x@y,b=https://me:secret@h:8/x?u=v", "a=http://h/x@y,b=https://me:***@h:8/x?u=v"),
        ("a=https://token@h", "a=https://***@h"),
        ("a=https://me:sec@ret@h", "a=https://me:***@h"),
    ] {
        let found = Found { flags: flag("notify", given), ..Found::default() };
        assert_eq!(one(&found, "notify").0, shown);
    }
    let found = Found { flags: flag("otlp_endpoint", "https://me:secret@h:4318"), ..Found::default() };
    assert_eq!(one(&found, "otlp_endpoint").0, "https://me:***@h:4318");
}

#[test]
fn a_wrong_value_in_the_file_is_an_error_even_when_hidden_by_a_flag() {
    let found = Found {
        flags: flag("limits.connections_max", "5"),
        file: Some(("m.toml".to_owned(), "[limits]\nconnections_max = 0\n".to_owned())),
        ..Found::default()
    };
    let error = resolve(&found).unwrap_err();
    assert!(error.contains("limits.connections_max (file m.toml, line 2): it must lie between 1 and"), "{error}");
}

#[test]
fn unknown_keys_name_their_line_and_the_nearest_setting() {
    let error = file::read("data = \"x\"\n\nadress = \"a:1\"\n").unwrap_err();
    assert_eq!(error, "line 3: there is no setting \"adress\"; did you mean \"address\"?");
    let error = file::read("[limits]\ncache_byte = 5\n").unwrap_err();
    assert_eq!(error, "line 2: there is no setting \"limits.cache_byte\"; did you mean \"limits.cache_bytes\"?");
    let error = file::read("[nowhere]\nx = 1\n").unwrap_err();
    assert!(error.starts_with("line 1: there is no setting \"nowhere\""), "{error}");
    let error = file::read("data = \"x\"\nnot toml\n").unwrap_err();
    assert!(error.starts_with("line 2: "), "{error}");
    let error = file::read("data = { a = 1 }").unwrap_err();
    assert_eq!(error, "line 1: data takes a text, a number, true, false or a list of texts");
}

#[test]
fn a_ratio_is_a_number_between_0_and_1() {
    let file = |text: &str| Found { file: Some(("m.toml".to_owned(), text.to_owned())), ..Found::default() };
    for (text, value) in [("0.25", "0.25"), ("1", "1"), ("\"0\"", "0"), ("1e-3", "1e-3")] {
        assert_eq!(one(&file(&format!("otlp_sample_ratio = {text}\n")), "otlp_sample_ratio").0, value);
    }
    for text in ["1.5", "-0.1", "nan", "\"x\""] {
        let error = resolve(&file(&format!("otlp_sample_ratio = {text}\n"))).unwrap_err();
        assert!(error.contains("otlp_sample_ratio") && error.contains("from 0 to 1"), "{error}");
    }
}

#[test]
fn lists_and_sizes_in_all_their_forms() {
    let found = Found {
        file: Some((
            "f".to_owned(),
            "domain = [\"a.example\", \"b.example\"]\nlimits.cache_bytes = 8388608".to_owned(),
        )),
        ..Found::default()
    };
    assert_eq!(one(&found, "domain").0, "a.example,b.example");
    assert_eq!(one(&found, "limits.cache_bytes").0, "8MiB");
    for (text, bytes) in [("4096", 4096), ("64KiB", 65536), ("1 GiB", 1 << 30), ("500MB", 500_000_000), ("7b", 7)] {
        assert_eq!(parse_bytes(text), Some(bytes), "{text}");
    }
    for text in ["", "MiB", "-1", "1.5GiB", "99999999999TiB"] {
        assert_eq!(parse_bytes(text), None, "{text}");
    }
    assert_eq!(show_bytes(1000), "1000");
}

#[test]
fn bad_values_say_what_would_be_right() {
    let named = |name: &str| SETTINGS.iter().find(|setting| setting.name == name).unwrap();
    let error = parse(named("address"), "9000").unwrap_err();
    assert!(error.contains("HOST:PORT") && !error.contains("or off"), "{error}");
    assert!(parse(named("admin_address"), "x").unwrap_err().contains("or off"));
    assert_eq!(parse(named("admin_address"), "off"), Ok(Value::Unset));
    assert_eq!(parse(named("limits.idle_seconds_max"), "90s"), Ok(Value::Number(90)));
}

#[test]
fn an_engine_that_there_is_not_is_refused_with_those_that_there_are() {
    let built = |engine: &str| {
        let found = Found { flags: flag("metadata", engine), ..Found::default() };
        Settings::build(&resolve(&found)?).map(|settings| settings.shared.is_some())
    };
    assert_eq!((built("embedded"), built("postgres://margay@h1,h2/db")), (Ok(false), Ok(true)));
    let error = built("mysql").unwrap_err();
    assert!(error.contains("mysql") && error.contains("embedded or postgres://"), "{error}");
}

#[test]
fn switches_are_words_or_booleans() {
    let built = |file: &str| {
        let found = Found { file: Some(("f".to_owned(), file.to_owned())), ..Found::default() };
        Settings::build(&resolve(&found)?).map(|settings| settings.auth)
    };
    let auth = built("").unwrap();
    assert!(auth.signature_v2 && auth.chunk_verification);
    let auth = built("[auth]\nsignature_v2 = false\nchunk_verification = \"false\"\n").unwrap();
    assert!(!auth.signature_v2 && !auth.chunk_verification);
    let error = built("[auth]\nsignature_v2 = \"no\"\n").unwrap_err();
    assert!(error.contains("none of: true, false"), "{error}");
    let mut found = Found::default();
    found.environment.insert("MARGAY_AUTH_SIGNATURE_V2".to_owned(), "false".to_owned());
    assert_eq!(one(&found, "auth.signature_v2").0, "false");
    found.flags = flag("auth.signature_v2", "true");
    assert_eq!(one(&found, "auth.signature_v2").0, "true");
}

#[test]
fn an_unknown_name_after_set_is_refused() {
    let found = Found { flags: flag("limits.nothing", "1"), ..Found::default() };
    assert!(resolve(&found).unwrap_err().starts_with("--set: there is no setting"));
}

#[test]
fn stray_variables_are_seen() {
    let mut found = Found::default();
    for name in ["MARGAY_ADRESS", "MARGAY_SECRET_KEY", "MARGAY_LIMITS_CACHE_BYTES", "HOME"] {
        found.environment.insert(name.to_owned(), "1MiB".to_owned());
    }
    assert_eq!(stray_variables(&found.environment), ["MARGAY_ADRESS"]);
}

#[test]
fn the_defaults_build_and_tls_needs_both_files() {
    let settings = Settings::build(&resolve(&Found::default()).unwrap()).unwrap();
    assert_eq!(settings.storage.log_bytes_max, 120 << 20);
    let found = Found { flags: flag("tls_key", "key.pem"), ..Found::default() };
    assert!(Settings::build(&resolve(&found).unwrap()).unwrap_err().contains("needs both"));
}

#[test]
fn an_identity_provider_needs_issuer_and_audience_and_an_authority_for_https() {
    let build = |values: &[(&str, &str)]| {
        let flags = values.iter().map(|(name, text)| (format!("oidc.{name}"), (*text).to_owned())).collect();
        let found = Found { flags, ..Found::default() };
        Settings::build(&resolve(&found).unwrap()).map(|settings| settings.oidc)
    };
    assert!(build(&[]).is_ok_and(|oidc| oidc.is_none()));
    for right in [
        &[("issuer", "http://id.example.com/realm"), ("audience", "a")][..],
        &[("issuer", "https://id.example.com/realm"), ("audience", "a"), ("ca", "ca.pem")],
        &[("issuer", "https://id.example.com/realm"), ("audience", "a"), ("keys", "keys.json")],
        &[("issuer", "of-any-form"), ("audience", "a"), ("keys", "http://keys.example.com/")],
    ] {
        assert!(build(right).is_ok_and(|oidc| oidc.is_some()), "{right:?}");
    }
    for wrong in [
        &[("issuer", "http://id.example.com/realm")][..],
        &[("audience", "a"), ("keys", "keys.json")],
        &[("ca", "ca.pem")],
        &[("issuer", "https://id.example.com/realm"), ("audience", "a")],
        &[("issuer", "of-any-form"), ("audience", "a")],
        &[("issuer", "http://id.example.com/"), ("audience", "a"), ("keys", "https://keys.example.com/")],
        &[("issuer", "http://me:secret@id.example.com/"), ("audience", "a")],
    ] {
        assert!(build(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn names_are_unique_and_sit_in_known_tables() {
    for (index, setting) in SETTINGS.iter().enumerate() {
        assert!(SETTINGS[..index].iter().all(|other| other.name != setting.name), "{}", setting.name);
        assert!(setting.name.split('.').count() <= 2 && !setting.about.is_empty());
        if matches!(setting.kind, Kind::Bytes { .. }) {
            assert!(setting.name.contains("bytes") || setting.name.contains("rate"), "{}", setting.name);
        }
    }
}
