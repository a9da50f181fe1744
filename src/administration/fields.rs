//! What the wish of a work may hold.
//!
//! Why:        a misspelt field would be taken for one that is not there, and the work done otherwise than it was meant.
//! Invariants: G1 a field that a work does not know, or of another kind, is refused before the work begins. One that is null counts as absent.
//! Not here:   which values make sense (the works).

use serde_json::Value;

use super::{NotDone, bad_wish};

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Text,
    /// A whole number that is not negative.
    Number,
    Flag,
    /// The work looks at it itself.
    Anything,
}

/// A name, and what it holds.
pub(super) type Field = (&'static str, Holds);

impl Holds {
    fn takes(self, value: &Value) -> bool {
        match self {
            Holds::Text => value.is_string(),
            Holds::Number => value.is_u64(),
            Holds::Flag => value.is_boolean(),
            Holds::Anything => true,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Holds::Text => "a text",
            Holds::Number => "a whole number, 0 or more",
            Holds::Flag => "true or false",
            Holds::Anything => "anything",
        }
    }
}

/// G1.
pub(super) fn check(fields: &[Field], wish: &Value) -> Result<(), NotDone> {
    let Some(wished) = wish.as_object() else { return Err(bad_wish("the request is no JSON object")) };
    for (name, value) in wished {
        let Some((_, holds)) = fields.iter().find(|(known, _)| known == name) else {
            let known: Vec<&str> = fields.iter().map(|(known, _)| *known).collect();
            let known =
                if known.is_empty() { "it takes none".to_owned() } else { format!("it takes {}", known.join(", ")) };
            return Err(bad_wish(format!("there is no field {name:?} here: {known}")));
        };
        if !value.is_null() && !holds.takes(value) {
            return Err(bad_wish(format!("{name} is {}, not {value}", holds.word())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_known_or_of_another_kind_is_refused() {
        let fields =
            [("name", Holds::Text), ("count", Holds::Number), ("really", Holds::Flag), ("to", Holds::Anything)];
        for right in [
            json!({}),
            json!({ "name": "a", "count": 0, "really": false, "to": [1] }),
            json!({ "name": null, "count": null }),
        ] {
            assert_eq!(check(&fields, &right), Ok(()), "{right}");
        }
        for (wrong, said) in [
            (json!({ "nmae": "a" }), "it takes name, count, really, to"),
            (json!({ "name": 7 }), "name is a text"),
            (json!({ "count": -1 }), "count is a whole number"),
            (json!({ "count": 1.5 }), "count is a whole number"),
            (json!({ "count": "1" }), "count is a whole number"),
            (json!({ "really": 1 }), "really is true or false"),
            (json!([]), "no JSON object"),
        ] {
            let Err(NotDone::BadWish(error)) = check(&fields, &wrong) else { panic!("{wrong} is taken") };
            assert!(error.contains(said), "{error}");
        }
        assert!(matches!(check(&[], &json!({ "a": 1 })), Err(NotDone::BadWish(error)) if error.contains("takes none")));
    }
}
