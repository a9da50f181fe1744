//! Object ownership: who owns objects that others write, and whether access control lists are enabled.

use crate::error::{Code, S3Error};
use crate::xml::read::walk;
use crate::xml::write::Writer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The bucket's owner owns everything; access lists are disabled.
    BucketOwnerEnforced,
    /// The bucket's owner owns objects written with `bucket-owner-full-control`.
    BucketOwnerPreferred,
    /// The writer of an object owns it. This is the default.
    ObjectWriter,
}

const ROOT: &str = "OwnershipControls";
const ALL: [Ownership; 3] = [Ownership::BucketOwnerEnforced, Ownership::BucketOwnerPreferred, Ownership::ObjectWriter];

impl Ownership {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Ownership::BucketOwnerEnforced => "BucketOwnerEnforced",
            Ownership::BucketOwnerPreferred => "BucketOwnerPreferred",
            Ownership::ObjectWriter => "ObjectWriter",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Ownership> {
        ALL.into_iter().find(|own| own.name() == name)
    }

    /// An invalid value counts as the strictest.
    pub(crate) fn decode(bytes: &[u8]) -> Ownership {
        std::str::from_utf8(bytes).ok().and_then(Ownership::of_name).unwrap_or(Ownership::BucketOwnerEnforced)
    }

    pub(crate) fn parse(document: &[u8]) -> Result<Ownership, S3Error> {
        let mut found = None;
        let mut wrong = false;
        walk(document, &mut |path, text| {
            match path {
                "OwnershipControls" | "OwnershipControls/Rule" => {}
                "OwnershipControls/Rule/ObjectOwnership" => {
                    let ownership = Ownership::of_name(text.trim());
                    wrong |= ownership.is_none() || found.is_some();
                    found = ownership;
                }
                _ => wrong = true,
            }
            Ok(())
        })?;
        found.filter(|_| !wrong).ok_or_else(|| Code::MalformedXML.into())
    }

    pub(crate) fn write(self, writer: &mut Writer<'_>) {
        writer.root(ROOT);
        writer.open("Rule");
        writer.text("ObjectOwnership", self.name());
        writer.close("Rule");
        writer.close(ROOT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents() {
        let document = |rule: &str| format!("<OwnershipControls>{rule}</OwnershipControls>");
        let rule = |name: &str| format!("<Rule><ObjectOwnership>{name}</ObjectOwnership></Rule>");
        for ownership in ALL {
            assert_eq!(Ownership::parse(document(&rule(ownership.name())).as_bytes()).unwrap(), ownership);
            assert_eq!(Ownership::decode(ownership.name().as_bytes()), ownership);
        }
        let two = rule("ObjectWriter").repeat(2);
        for bad in [document(""), document(&rule("Nobody")), document(&two), "<Other/>".to_owned()] {
            assert_eq!(Ownership::parse(bad.as_bytes()).unwrap_err().code, Code::MalformedXML, "{bad}");
        }
        assert_eq!(Ownership::decode(b"Later"), Ownership::BucketOwnerEnforced);
    }
}
