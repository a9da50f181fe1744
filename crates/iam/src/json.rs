//! Two shapes of JSON that policies use and serde has no type for.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// A single value, or a list of values.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

/// An object that keeps its order and refuses duplicate names, since it would be unclear which one counts.
pub(crate) struct UniqueMap<V>(pub(crate) Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UniqueMap<V>, D::Error> {
        struct Map<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Map<V> {
            type Value = UniqueMap<V>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<UniqueMap<V>, A::Error> {
                let mut entries: Vec<(String, V)> = Vec::new();
                while let Some((name, value)) = access.next_entry::<String, V>()? {
                    if entries.iter().any(|(earlier, _)| *earlier == name) {
                        return Err(A::Error::custom(format_args!("{name} is given twice")));
                    }
                    entries.push((name, value));
                }
                Ok(UniqueMap(entries))
            }
        }

        deserializer.deserialize_map(Map(PhantomData))
    }
}
