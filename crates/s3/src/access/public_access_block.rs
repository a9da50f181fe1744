//! Public access block: four switches that prevent accidental public access.
//!
//! Layout: stored as the names of the enabled switches, separated by spaces (docs/format/identities.md).

use crate::error::{Code, S3Error};
use crate::xml::read::walk;
use crate::xml::write::Writer;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PublicAccessBlock {
    /// New public lists are refused.
    pub block_acls: bool,
    /// Public grants are ignored.
    pub ignore_acls: bool,
    /// New public policies are refused.
    pub block_policy: bool,
    /// A public policy grants access to the bucket's own account only.
    pub restrict_buckets: bool,
}

const ROOT: &str = "PublicAccessBlockConfiguration";
const NAMES: [&str; 4] = ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"];

impl PublicAccessBlock {
    /// All switches on, for a stored value that cannot be decoded.
    pub(crate) const ALL: PublicAccessBlock =
        PublicAccessBlock { block_acls: true, ignore_acls: true, block_policy: true, restrict_buckets: true };

    fn switches(self) -> [bool; 4] {
        [self.block_acls, self.ignore_acls, self.block_policy, self.restrict_buckets]
    }

    fn of([block_acls, ignore_acls, block_policy, restrict_buckets]: [bool; 4]) -> PublicAccessBlock {
        PublicAccessBlock { block_acls, ignore_acls, block_policy, restrict_buckets }
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let on: Vec<&str> =
            NAMES.into_iter().zip(self.switches()).filter(|(_, on)| *on).map(|(name, _)| name).collect();
        on.join(" ").into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> PublicAccessBlock {
        let Ok(text) = std::str::from_utf8(bytes) else { return PublicAccessBlock::ALL };
        let mut switches = [false; 4];
        for word in text.split_whitespace() {
            match NAMES.iter().position(|name| *name == word) {
                Some(index) => switches[index] = true,
                None => return PublicAccessBlock::ALL,
            }
        }
        PublicAccessBlock::of(switches)
    }

    pub(crate) fn parse(document: &[u8]) -> Result<PublicAccessBlock, S3Error> {
        let mut switches = [false; 4];
        let mut wrong = false;
        walk(document, &mut |path, text| {
            let name = path.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/'));
            match name.and_then(|name| NAMES.iter().position(|own| *own == name)) {
                Some(index) => match text.trim() {
                    "true" | "TRUE" => switches[index] = true,
                    "false" | "FALSE" => switches[index] = false,
                    _ => wrong = true,
                },
                None => wrong |= path != ROOT,
            }
            Ok(())
        })?;
        if wrong { Err(Code::MalformedXML.into()) } else { Ok(PublicAccessBlock::of(switches)) }
    }

    pub(crate) fn write(self, writer: &mut Writer<'_>) {
        writer.root(ROOT);
        for (name, on) in NAMES.into_iter().zip(self.switches()) {
            writer.text(name, if on { "true" } else { "false" });
        }
        writer.close(ROOT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read_again() {
        let document = "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls>\
                        <RestrictPublicBuckets>false</RestrictPublicBuckets></PublicAccessBlockConfiguration>";
        let block = PublicAccessBlock::parse(document.as_bytes()).unwrap();
        assert_eq!(block, PublicAccessBlock { block_acls: true, ..PublicAccessBlock::default() });
        for block in [block, PublicAccessBlock::ALL, PublicAccessBlock::default()] {
            assert_eq!(PublicAccessBlock::decode(&block.encode()), block);
        }
        assert_eq!(PublicAccessBlock::decode(b"BlockSomethingElse"), PublicAccessBlock::ALL);
        for bad in [
            "<Other/>",
            "<PublicAccessBlockConfiguration><BlockPublicAcls>yes</BlockPublicAcls></PublicAccessBlockConfiguration>",
        ] {
            assert_eq!(PublicAccessBlock::parse(bad.as_bytes()).unwrap_err().code, Code::MalformedXML);
        }
    }
}
